"""Driver and tasks as processes: the protocol over sockets of this host, or TCP."""
