"""Java behaviour that Kafka's responses depend on: hash codes, order of hash maps, and the metadata hash."""
