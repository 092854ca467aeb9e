"""The loop over keys and records, written out and compiled for one operator."""
