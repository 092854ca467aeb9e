"""Joins of two keyed streams."""
