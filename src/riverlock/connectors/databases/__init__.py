"""SQL databases as an output and as an input."""
