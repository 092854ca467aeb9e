"""Redis as an output, and as a table for look-ups."""
