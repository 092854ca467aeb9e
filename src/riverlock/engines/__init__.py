"""Engines: what runs the stages of an epoch."""
