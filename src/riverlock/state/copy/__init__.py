"""Working copies: the state of a task on local disk, rebuilt from the store at will."""
