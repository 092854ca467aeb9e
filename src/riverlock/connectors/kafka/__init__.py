"""Kafka, by confluent-kafka: the one package that imports it."""
