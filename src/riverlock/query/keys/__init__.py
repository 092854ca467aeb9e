"""Keys in questions about state: as people type them, and where their entries are."""
