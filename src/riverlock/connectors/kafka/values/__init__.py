"""Values of Kafka records whose schemas are in a registry."""
