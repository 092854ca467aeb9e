"""What cannot run continuously, said with its name and the way out."""

from __future__ import annotations

from typing import Any

from riverlock.core.errors import InvalidFlowError

__all__ = ["Refused", "refusal"]

_SHOWN_CHARACTERS = 120


class Refused(Exception):  # noqa: N818 - never seen by users
    """An expression or a plan is outside of the subset.

    Attributes:
        name: What it is, such as ``regexp_extract()``.
    """

    def __init__(self, name: str, node: Any = None) -> None:
        """Name it; the node is shown as Spark prints it."""
        text = "" if node is None else str(node.sql())
        if len(text) > _SHOWN_CHARACTERS:
            text = f"{text[:_SHOWN_CHARACTERS]}..."
        self.name = f"{name} in {text}" if text and not text.startswith(name) else name
        super().__init__(self.name)


def refusal(what: str, refused: Refused, line: str = "") -> InvalidFlowError:
    """Return the error for a step that has something outside of the subset."""
    return InvalidFlowError(
        f"{what} in a flow that runs continuously",
        expected="expressions that run without Spark (see docs/reference.md)",
        found=refused.name,
        hint="it runs with execution='jobs'; or write the step with map(), filter() or"
        " in a Process",
        line=line or None,
    )
