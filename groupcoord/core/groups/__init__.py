"""Groups: a folder for each type, and ``base`` for what types with logged state share."""
