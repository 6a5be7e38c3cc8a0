"""The share coordinator: states of share-partitions, and their log."""
