"""Sources that users have written, behind the interface that engines know."""
