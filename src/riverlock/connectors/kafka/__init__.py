"""Kafka, with confluent-kafka: the only package that imports it."""
