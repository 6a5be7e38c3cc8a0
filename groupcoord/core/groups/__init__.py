"""Groups of every kind: each kind has a folder, and ``base`` holds what three of them share."""
