"""Tables of databases: ranges of a column, fixed by the driver and read by tasks."""
