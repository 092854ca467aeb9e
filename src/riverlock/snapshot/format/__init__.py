"""The open format, record by record: what `docs/format.md` says, in code."""
