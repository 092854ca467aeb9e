"""Declared state, its handles, and the stores that hold it."""
