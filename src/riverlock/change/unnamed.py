"""Uids that nobody has given: told before the code changes, with the line to write.

What is kept under such a uid follows the order of the code. Until that changes all is
well, so it is told, not refused; what a start does then is in ``renumbering``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.change.renumbering import described, written
from riverlock.program.meaning import meanings_of

if TYPE_CHECKING:
    from riverlock.program.program import Program

__all__ = ["Unnamed", "tell_unnamed", "unnamed"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Unnamed:
    """A source, operator or sink whose uid was made from the order of the code.

    Attributes:
        uid: The uid.
        of: What it stands for.
        write: What to write in the code to keep it.
        line: Where.
    """

    uid: str
    of: str
    write: str
    line: str

    def __str__(self) -> str:
        """Return what to write, and where."""
        return f"{self.write} for {self.of}" + (
            f", at {self.line}" if self.line else ""
        )


def unnamed(program: Program) -> list[Unnamed]:
    """Return whose state, offsets or output hang on the order of the code."""
    generated = program.generated
    lines = {getattr(n, "uid", None): n.line for n in program.nodes}
    return [
        Unnamed(
            uid=uid,
            of=described(meaning),
            write=written(generated[uid]),
            line=lines.get(uid, ""),
        )
        for uid, meaning in meanings_of(program).items()
        if uid in generated and meaning.kind != "event_time"
    ]


def tell_unnamed(program: Program) -> None:
    """Say at a start which uids to write; those made from another follow it."""
    found = [u for u in unnamed(program) if program.generated[u.uid] == u.uid]
    if found:
        lines = "".join(f"\n  {each}" for each in found)
        log.warning(
            "state, positions and output are kept by uid. These uids follow the order"
            " of the code; write them down before it changes:%s",
            lines,
        )
