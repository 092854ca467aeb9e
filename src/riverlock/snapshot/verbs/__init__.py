"""What people do to a store: restore, fork, diff, expire, repair, verify."""
