"""Values: how they look in Arrow, in JSON and in Python, and whether two are one."""
