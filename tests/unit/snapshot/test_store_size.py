"""State of N bytes: the store has at most three times as many, beside its history."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.unit.snapshot.local_flow import LocalFlow, source

import riverlock as rl
from riverlock.driver.region_loop import RegionDriver
from riverlock.snapshot.retention.compaction import FLOOR_BYTES, Compaction, compact
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.verbs.verify import verify

KEYS, CHANGED, EPOCHS = 2_000, 500, 28


class Newest(rl.Process):
    """Keeps the newest value of each key, which cannot be compressed."""

    text = rl.Value("string")

    def on_event(self, row: Any, ctx: Any) -> None:
        self.text = row.text


class NewestFlow(LocalFlow):
    def build(self) -> rl.Flow:
        flow = rl.Flow("newest", key_groups=8)
        rows = flow.read(source("k long, text string"), uid="rows")
        rows.key_by("k").process(Newest(), uid="op")
        return flow


def test_a_store_of_n_bytes_of_state_has_at_most_three_times_as_many(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)
    keys = [*range(KEYS)]
    for _ in range(EPOCHS):
        keys += chance.sample(range(KEYS), CHANGED)
    rows = [(key, chance.randbytes(500).hex()) for key in keys]
    flow = NewestFlow(tmp_path / "store", rows, tmp_path / "out", parallelism=2)
    sizes: list[int] = []

    def after(driver: RegionDriver) -> None:
        # At once, instead of beside the loop: the bound must not hang on who is faster.
        driver.cleaner.offer = driver.cleaner.clean  # type: ignore[method-assign]
        state = flow.catalog.resolve(None).operators["op"]
        sizes.append(sum(file.bytes for file in state.files))

    flow.after = after
    keep = Retention(epochs=1, grace=timedelta(0))
    flow.run(1, epoch_rows=KEYS, retention=keep)
    flow.run(epoch_rows=CHANGED, retention=keep)
    catalog = flow.catalog
    sweep(catalog, keep)

    newest = catalog.resolve(None)
    assert newest.epoch == EPOCHS
    total = sum(p.stat().st_size for p in (flow.store / "regions").rglob("*.*"))
    whole = compact(
        catalog.storage,
        catalog.paths,
        Compaction(
            operator="op", files=newest.operators["op"].files, drops_tombstones=True
        ),
        now_us=newest.now_us,
        pieces=[(0, 8)],
        attempt="all",
    )
    n = sum(file.bytes for file in whole)
    assert n > FLOOR_BYTES  # else nothing would be merged for its size
    assert max(sizes) <= 3 * n
    assert total <= 3 * n + 100_000
    # Without merging it would be eight times as much.
    assert sum(len(text) // 2 for _, text in rows) > 7 * n
    assert all(report.is_whole for report in verify(catalog))
