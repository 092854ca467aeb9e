"""State, keys and rows of many keys at once, as Arrow columns."""
