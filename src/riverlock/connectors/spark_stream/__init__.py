"""Structured Streaming DataFrames as an input."""
