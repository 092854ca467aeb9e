"""Runs a region: tasks in workers, the loop in the driver."""
