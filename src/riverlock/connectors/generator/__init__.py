"""Generated rows as an input."""
