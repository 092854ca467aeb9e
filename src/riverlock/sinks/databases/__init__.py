"""SQL databases as sinks: ``rl.sinks.sql(...)``."""
