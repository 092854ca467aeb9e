"""What an epoch takes: how much, up to when, by how many tasks."""
