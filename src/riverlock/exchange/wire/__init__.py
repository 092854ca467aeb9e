"""Frames as bytes, and columns in them; no sockets."""
