"""What a flow asks of engines, and who answers: said from above, never imported.

Engines know programs, and no program knows engines. ``riverlock`` itself, which is
above both, says at its import who answers; nothing is loaded before a flow asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta
    from typing import Unpack

    from riverlock.driver.handle import Handle
    from riverlock.driver.run_options import RunKeywords
    from riverlock.flow.stream import Stream
    from riverlock.program.program import Program
    from riverlock.replay.report import Replay
    from riverlock.snapshot.format.run_status import Status

__all__ = ["Engines", "answer_with", "engines"]


class Engines(Protocol):
    """What runs, checks and replays programs, and parses SQL over their streams."""

    def run(self, flow: Program, store: str, **options: Unpack[RunKeywords]) -> Status:
        """Run in this thread; see ``Flow.run``."""
        ...

    def start(
        self, flow: Program, store: str, **options: Unpack[RunKeywords]
    ) -> Handle:
        """Run in a thread of its own; see ``Flow.start``."""
        ...

    def check_start(
        self,
        flow: Program,
        *,
        store: str | None = None,
        **options: Unpack[RunKeywords],
    ) -> None:
        """Check without reading anything; see ``Flow.check``."""
        ...

    def replay(
        self,
        flow: Program,
        store: str,
        *args: Any,
        execution: Any,
        spark: Any,
        **options: Any,
    ) -> Replay:
        """Run epochs again; see ``Flow.replay``."""
        ...

    def translate(
        self,
        flow: Program,
        query: str,
        tables: Mapping[str, Any],
        *,
        uid: str | None,
        lateness: str | timedelta | None,
    ) -> Stream:
        """Make a stream of a query; see ``Flow.sql``."""
        ...


_answers: list[Callable[[], Engines]] = []


def answer_with(find: Callable[[], Engines]) -> None:
    """Say who answers; called by ``riverlock`` when it is imported."""
    _answers[:] = [find]


def engines() -> Engines:
    """Return who answers, and load it."""
    return _answers[0]()
