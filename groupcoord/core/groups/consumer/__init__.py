"""Groups of the consumer protocol of KIP-848, whose coordinator assigns."""
