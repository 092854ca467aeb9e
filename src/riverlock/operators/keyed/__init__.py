"""User-defined processes: state of a key as attributes, timers, outputs."""
