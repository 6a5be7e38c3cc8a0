"""Router: checks of requests before their group, and the way to the log partition."""
