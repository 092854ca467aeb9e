"""Stages as Spark jobs."""
