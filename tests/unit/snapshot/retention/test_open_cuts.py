"""Epochs that a cut needs are kept while other regions still have to bear it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.storage.open import open_storage
from riverlock.testing import rows


class Sum(rl.Process):
    """Adds up what it gets."""

    output = "k string, total long"
    total = rl.Value("long", default=0)

    def on_event(self, row: Any, ctx: rl.Context) -> Any:
        self.total += row.n
        yield ctx.key, self.total


def fork_in_the_road(given: list[Any]) -> rl.Flow:
    """Return a flow whose region *main* is read by *quick* and by *away*."""
    flow = rl.Flow("roads", key_groups=4)
    numbers = flow.read(rows("k string, n long", given), uid="numbers")
    for name in ("quick", "away"):
        there = numbers.region(name, uid=f"to-{name}").key_by("k")
        there.process(Sum(), uid=f"sum-{name}").write(
            rl.sinks.memory(), uid=f"out-{name}"
        )
    return flow


@pytest.mark.parametrize("protocol", ["aligned", "unaligned"])
def test_a_region_keeps_its_part_of_a_cut_that_another_one_holds_up(
    tmp_path: Path, protocol: str
) -> None:
    store = str(tmp_path / "s")
    given = [("a", n) for n in range(30)]
    options: dict[str, Any] = {"execution": "local", "available_now": True}
    storage = open_storage(store)

    fork_in_the_road(given).run(store, max_rows_per_epoch=10, **options)
    cut = CutLog(storage).propose(
        "v1", protocol=protocol, asked_us=2**53, timeout_us=2**40, note=""
    )
    given += [("a", n) for n in range(100)]
    for name in ("main", "quick"):
        fork_in_the_road(given).run(
            store,
            region=name,
            max_rows_per_epoch=10,
            retain_epochs=2,
            grace="0 seconds",
            **options,
        )

    quick = Catalog(storage, "quick")
    bears = [e for e in quick.epochs() if cut.number in quick.manifest(e).markers]
    assert len(bears) == 1
    assert bears[0] + 2 < quick.epochs()[-1]
    # The one that was away comes back: the cut is whole, and sums fit.
    fork_in_the_road(given).run(store, max_rows_per_epoch=10, **options)
    assert CutLog(storage).taken(cut) is not None
    first, second = (
        rl.open(store).at("v1").state(f"sum-{name}").to_arrow().to_pylist()
        for name in ("quick", "away")
    )
    in_flight = sum(r["n"] for r in rl.open(store).at("v1").in_flight("to-away"))
    assert first[0]["total"] == second[0]["total"] + in_flight
