"""How files are read, each exactly once."""
