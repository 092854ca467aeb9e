"""Channels that nobody has named: rows of one are not given to another reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidConfigError
from riverlock.testing import rows

LEFT = [("left", n) for n in range(6)]
RIGHT = [("right", n) for n in range(6)]


def flow_of(*names: str, uids: dict[str, str] | None = None) -> rl.Flow:
    """Return a flow that brings both streams to a region, in this order."""
    flow = rl.Flow("two", key_groups=4)
    read = {
        "left": flow.read(rows("k string, n int", LEFT), uid="left"),
        "right": flow.read(rows("k string, n int", RIGHT), uid="right"),
    }
    for name in names:
        entered = read[name].region("behind", uid=(uids or {}).get(name))
        entered.key_by("k").count(uid=f"count-{name}")
    return flow


def run(flow: rl.Flow, store: Path) -> None:
    some: dict[str, Any] = {"execution": "local", "available_now": True}
    flow.run(str(store), max_rows_per_epoch=2, **some)


def test_channels_that_changed_places_are_refused(tmp_path: Path) -> None:
    store = tmp_path / "s"
    run(flow_of("left", "right"), store)
    # Rows that were not read yet are in the channels.
    for file in sorted((store / "regions/behind/epochs").iterdir())[1:]:
        file.unlink()

    with pytest.raises(InvalidConfigError, match="'to-behind-1'") as told:
        run(flow_of("right", "left"), store)

    assert 'uid="to-behind-1"' in told.value.hint
    named = {"left": "to-behind-1", "right": "to-behind-2"}
    run(flow_of("right", "left", uids=named), store)
    for side in ("left", "right"):
        (count,) = rl.open(str(store)).state(f"count-{side}").to_arrow().to_pylist()
        assert (count["k"], count["count"]) == (side, 6)


def test_the_only_channel_may_carry_something_else(tmp_path: Path) -> None:
    run(flow_of("left"), tmp_path / "s")
    flow = rl.Flow("two", key_groups=4)
    read = flow.read(rows("k string, n int", LEFT), uid="left")
    more = read.filter(lambda r: r.n >= 0, uid="some").region("behind")
    more.key_by("k").count(uid="count-left")
    run(flow, tmp_path / "s")
