from __future__ import annotations

import pytest

from riverlock.cli.replay import _as_it_was
from riverlock.replay.comparison import OutputComparison
from riverlock.replay.report import EpochReplay, Replay


def replayed(**outputs: bool | None) -> Replay:
    found = tuple(
        OutputComparison(sink=sink, recorded_rows=1, rows=1, matches=matches, how="")
        for sink, matches in outputs.items()
    )
    epochs = [EpochReplay(epoch=e, rows=1, states=(), outputs=found) for e in (1, 2)]
    return Replay(epochs=tuple(epochs), recorded_code=("c",), code="c", changes=())


@pytest.mark.parametrize(
    ("found", "key", "said"),
    [
        (replayed(out=True), None, "state and outputs are as they were"),
        (
            replayed(out=True, db=None, page=None),
            None,
            "state is as it was; outputs too, but for db, page",
        ),
        (replayed(), "ann", "state of key ann is as it was; outputs were not compared"),
    ],
)
def test_only_what_was_compared_is_said_to_match(
    found: Replay, key: str | None, said: str
) -> None:
    assert _as_it_was(found, key) == said
