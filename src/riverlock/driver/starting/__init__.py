"""What a run looks at, opens and takes over before its first epoch."""
