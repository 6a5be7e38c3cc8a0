"""What Kafka's answers inherit from Java: hash codes and orders of hash maps, and the hash of a group's metadata."""
