"""Delta Lake tables as an output."""
