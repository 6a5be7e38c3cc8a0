"""A share-partition as its leader has it."""
