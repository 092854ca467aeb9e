"""What only Spark can run, said with the way out."""

from __future__ import annotations

from riverlock.core.errors import InvalidFlowError

__all__ = ["needs_spark"]


def needs_spark(what: str, found: str) -> InvalidFlowError:
    """Return the error for a step that the local engine cannot run."""
    return InvalidFlowError(
        f"{what} on the local engine",
        expected="steps in Python: map, flat_map, filter, union, event_time, key_by and"
        " what follows it",
        found=found,
        hint="run the flow on Spark: flow.run(...) without execution='local'",
    )
