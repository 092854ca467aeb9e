"""Stages in one thread of this process, without Spark."""
