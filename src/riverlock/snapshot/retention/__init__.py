"""What keeps epochs, what deletes them, and how files are merged."""
