"""The program as a frozen description: what flows are made of."""
