"""Decided epochs, run once more and compared."""
