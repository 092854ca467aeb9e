"""The program as a frozen description: what flows consist of."""
