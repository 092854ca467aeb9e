"""Money between accounts, over regions: in every snapshot its sum is the same."""
