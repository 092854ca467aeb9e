"""Payments: bills exactly once into a database, alerts at least once, from one stream."""
