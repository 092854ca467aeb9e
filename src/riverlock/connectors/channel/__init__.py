"""Rows on their way from one region to another, as the writer's manifests list them."""
