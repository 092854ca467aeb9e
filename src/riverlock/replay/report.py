"""What a replay found; knows nothing of how it ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from riverlock.replay.comparison import Change, OutputComparison, StateComparison
    from riverlock.replay.key_steps import KeyStep

__all__ = ["EpochReplay", "Replay"]


@dataclass(frozen=True, kw_only=True)
class EpochReplay:
    """One epoch, run again.

    Attributes:
        epoch: Its number.
        rows: Input rows that tasks handled.
        states: What became of each operator's state.
        outputs: What became of each sink's rows; empty if only one key was handled.
    """

    epoch: int
    rows: int
    states: tuple[StateComparison, ...]
    outputs: tuple[OutputComparison, ...]

    @property
    def matches(self) -> bool:
        """Whether nothing that could be compared differs."""
        return all(s.matches for s in self.states) and not any(
            o.matches is False for o in self.outputs
        )


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What a replay found.

    Attributes:
        epochs: Each epoch.
        recorded_code: Fingerprints of the code that ran then.
        code: Fingerprint of the code that ran now.
        changes: Entries of state that came out differently, over all epochs.
        key_rows: Records of the only key that was handled; None: all were.
        steps: What user code did with that key: each event and timer, the state before
            and after it, and the rows it emitted.
    """

    epochs: tuple[EpochReplay, ...]
    recorded_code: tuple[str, ...]
    code: str
    changes: tuple[Change, ...]
    key_rows: int | None = None
    steps: tuple[KeyStep, ...] = ()

    @property
    def matches(self) -> bool:
        """Whether nothing that could be compared differs."""
        return all(e.matches for e in self.epochs)

    @property
    def saw_nothing(self) -> bool:
        """Whether the key that was asked for had neither records nor timers."""
        return self.key_rows == 0 and not any(
            s.entries for e in self.epochs for s in e.states
        )

    @property
    def is_same_code(self) -> bool:
        """Whether the code is that of the epochs; otherwise this is a shadow run."""
        return set(self.recorded_code) == {self.code}
