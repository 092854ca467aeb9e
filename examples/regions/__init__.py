"""Payments: bills exactly once in a database, alerts at least once, in one flow."""
