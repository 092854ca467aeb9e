"""Rows of a flow as Arrow tables: what engines share that read without Spark."""
