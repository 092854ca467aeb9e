"""Takes snapshots of several regions, and of several flows, while they run."""
