"""Files of a directory or an object store, as input and as output."""
