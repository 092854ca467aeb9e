"""The open snapshot format: layout, manifests, state files."""
