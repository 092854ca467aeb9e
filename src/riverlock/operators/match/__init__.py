"""Patterns in the events of each key."""
