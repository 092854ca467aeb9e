"""The program as a frozen description."""
