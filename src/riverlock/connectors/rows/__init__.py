"""Rows that are kept in memory, for tests."""
