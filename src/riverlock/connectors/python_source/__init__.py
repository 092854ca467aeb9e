"""PySpark's Python data sources as an input."""
