"""Aggregates: partial results, how they merge, and sketches."""
