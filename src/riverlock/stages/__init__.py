"""Stages: what an epoch runs, planned before the first one, for any engine."""
