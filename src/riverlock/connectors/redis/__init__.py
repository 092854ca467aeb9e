"""Redis as an output, and as a table to look rows up in."""
