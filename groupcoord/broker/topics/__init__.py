"""Topics of a server, and the requests that create, change and delete them."""
