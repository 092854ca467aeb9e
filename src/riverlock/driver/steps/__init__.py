"""What the loop of a region does in one step, and what became of it."""
