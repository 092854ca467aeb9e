"""Inside a task: input in, one vote out."""
