"""What sources and sinks of databases share."""
