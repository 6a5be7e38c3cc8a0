"""A share-partition as its leader has it (KIP-932): which records are whose, for how long, and how often they were."""
