"""State that can never be forgotten: it grows with every new key, for ever."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.operators.base import BuiltIn
from riverlock.program.input_end import is_bounded
from riverlock.program.windows import GlobalWindow

if TYPE_CHECKING:
    from riverlock.program.graph import Keyed
    from riverlock.program.program import Program

__all__ = ["EndlessState", "endless_states", "tell_endless_states"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EndlessState:
    """An operator that forgets no key.

    Attributes:
        uid: The operator.
        keys: Its key columns.
        write: What to write instead.
        line: Where it was written.
    """

    uid: str
    keys: tuple[str, ...]
    write: str
    line: str

    def __str__(self) -> str:
        """Return what is wrong, and what to do."""
        told = (
            f"operator {self.uid!r} keeps state for every {', '.join(self.keys)} and"
            f" never forgets any, so it only grows; {self.write}"
        )
        return f"{told} ({self.line})" if self.line else told


def endless_states(program: Program) -> list[EndlessState]:
    """Return the operators of a flow whose state can only grow."""
    return [
        EndlessState(uid=node.uid, keys=node.keys, write=_instead(node), line=node.line)
        for node in program.keyed
        if node.keys and _is_endless(node) and not is_bounded(node)
    ]


def tell_endless_states(program: Program) -> None:
    """Warn about them at a start."""
    for each in endless_states(program):
        log.warning("%s", each)


def _is_endless(node: Keyed) -> bool:
    if node.windows is not None:
        return isinstance(node.windows.window, GlobalWindow)
    if node.process is None:
        return True
    return isinstance(node.process, BuiltIn) and node.process.keeps_all_keys


def _instead(node: Keyed) -> str:
    if ".sql(" in node.line:
        return "add a window to GROUP BY: window(at, '1 day') with an event_time before"
    return (
        'add a window: .event_time("at").key_by(...).window(rl.tumbling("1 day")), or'
        ' write a Process whose state expires: rl.Value(..., ttl="30 days")'
    )
