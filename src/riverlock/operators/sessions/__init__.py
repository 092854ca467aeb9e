"""Sessions: windows that end with a gap."""
