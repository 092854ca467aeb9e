"""What is stored of cuts besides the snapshots that come of them."""
