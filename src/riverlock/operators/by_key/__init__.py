"""Operators that look at one key at a time, each with the method that makes it."""
