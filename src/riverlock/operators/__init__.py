"""Operators, each with its declaration and its execution side by side."""
