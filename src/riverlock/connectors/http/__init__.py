"""A web server as an output."""
