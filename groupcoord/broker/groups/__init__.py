"""Requests that name many things of the group coordinator, which is asked about one of them, or so many, at a time."""
