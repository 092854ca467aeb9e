"""Text that becomes rows, and text that cannot."""
