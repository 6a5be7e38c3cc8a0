"""The append queue of a log partition, its hard state, and the records that both are made of."""
