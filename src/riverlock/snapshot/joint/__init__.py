"""What several flows share: who reads whose channels, and snapshots over all."""
