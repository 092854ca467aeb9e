"""The driver: the loop of a region, and everything beside it."""
