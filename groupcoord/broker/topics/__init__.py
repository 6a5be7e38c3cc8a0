"""Which topics there are, and the requests that make, change, delete and describe them."""
