"""Going back and forking: a flow and its fork come to the same end."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import riverlock as rl
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.state_reader import read_entries
from riverlock.storage.open import open_storage

ROWS = 300


class Total(rl.Process):
    output = "k bigint, total bigint"
    total = rl.Value("bigint", default=0)

    def on_event(self, e: Any, ctx: Any) -> Any:
        self.total += e.n
        yield e.k, self.total


def run(store: Path, out: Path) -> None:
    flow = rl.Flow("totals", key_groups=8)
    numbers = flow.read(rl.sources.generator({"n": "id"}, rows=ROWS))
    rows = numbers.map(lambda r: (r.n % 3, r.n), "k bigint, n bigint")
    written = rows.key_by("k").process(Total(), uid="total")
    written.write(rl.sinks.files(str(out), format="json"), uid="out")
    flow.run(
        str(store),
        execution="local",
        parallelism=2,
        available_now=True,
        max_rows_per_epoch=100,
    )


def expected(first: int = 0) -> Counter[tuple[int, int]]:
    sums = dict.fromkeys(range(3), 0)
    found: Counter[tuple[int, int]] = Counter()
    for n in range(ROWS):
        sums[n % 3] += n
        if n >= first:
            found[n % 3, sums[n % 3]] += 1
    return found


def output(out: Path) -> Counter[tuple[int, int]]:
    lines = [
        json.loads(line)
        for file in out.glob("epoch=*/*")
        for line in file.read_text().splitlines()
    ]
    return Counter((row["k"], row["total"]) for row in lines)


def state(store: Path) -> dict[int, int]:
    catalog = Catalog(open_storage(str(store)))
    newest = catalog.resolve(None)
    found = read_entries(catalog.storage, newest.operators["total"], now_us=0)
    assert found is not None
    return {r["key"]["k"]: r["data"]["total"] for r in found.to_pylist()}


def test_a_flow_that_goes_back_and_a_fork_come_to_the_same_end(
    tmp_path: Path,
) -> None:
    store, fork = tmp_path / "store", tmp_path / "fork"
    run(store, tmp_path / "out")
    final = {k: sum(range(k, ROWS, 3)) for k in range(3)}
    assert state(store) == final

    rl.stores.fork(f"{store}@0", str(fork))
    rl.stores.restore(f"{store}@0")

    assert state(store) == state(fork) == {k: sum(range(k, 100, 3)) for k in range(3)}
    run(store, tmp_path / "out")
    run(fork, tmp_path / "fork-out")
    assert state(store) == state(fork) == final
    assert output(tmp_path / "out") == expected()
    assert output(tmp_path / "fork-out") == expected(first=100)
    assert rl.stores.diff(str(store), str(fork)).changes == ()
    for place in (store, fork):
        assert rl.stores.verify(str(place)).is_whole
