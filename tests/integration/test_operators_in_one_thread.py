"""Flows of operators in one thread, over epochs and restarts, against plain Python.

Nothing of it is a matter of the engine: that all of them do the same is shown by
``tests/conformance/test_engines.py``.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.integration.everything import Everything, Sessions, fold
from tests.integration.orders import ORDERS, T0, Row, state

import riverlock as rl
from riverlock.core.clock import ManualClock
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage.open import open_storage
from riverlock.testing import rows as listed


def run(flow: rl.Flow, store: Path, **options: Any) -> None:
    options = {"available_now": True, "max_rows_per_epoch": 150, **options}
    flow.run(str(store), execution="local", **options)
    assert all(report.is_whole for report in verify(Catalog(open_storage(str(store)))))


def test_timers_fire_once_when_the_watermark_passes(tmp_path: Path) -> None:
    rows = [("a", 0, 0.0, T0), ("a", 1, 0.0, T0 + timedelta(seconds=5))]
    rows += [("b", 2, 0.0, T0 + timedelta(seconds=100))]
    flow = rl.Flow("timers")
    out = rl.sinks.memory()
    stream = flow.read(listed(ORDERS, rows)).event_time("at", delay="10 seconds")
    stream.key_by("user").process(Sessions(), uid="s").write(out)

    run(flow, tmp_path / "store")

    assert out.rows() == [("a", 2, T0 + timedelta(seconds=25))]
    assert state(tmp_path / "store", "s", "timers") == [
        ("b", "event", T0 + timedelta(seconds=120))
    ]


def test_processing_timers_and_timeouts_follow_the_clock(tmp_path: Path) -> None:
    rows = [("a", 0, 1.0, T0), ("b", 1, 2.0, T0)]
    clock = ManualClock(1_000_000_000)
    out = rl.sinks.memory()

    def build() -> rl.Flow:
        flow = rl.Flow("timeouts")
        flow.read(listed(ORDERS, rows)).key_by("user").map_with_state(
            lambda r, s: (
                ("gone", s) if r is None else (r.user, (s or 0.0) + r.amount),
                None if r is None else (s or 0.0) + r.amount,
            ),
            "double",
            "user string, total double",
            timeout="1 minute",
            uid="m",
        ).write(out)
        return flow

    run(build(), tmp_path / "store", clock=clock)
    assert sorted(out.rows()) == [("a", 1.0), ("b", 2.0)]
    run(build(), tmp_path / "store", clock=clock)
    assert len(out.rows()) == 2  # nothing is due yet

    clock.advance("61 seconds")
    run(build(), tmp_path / "store", clock=clock)

    assert sorted(out.rows())[2:] == [("gone", 1.0), ("gone", 2.0)]
    assert state(tmp_path / "store", "m", "state") == []
    assert state(tmp_path / "store", "m", "timers") == []


def test_running_count_and_reduce_emit_the_running_value(
    tmp_path: Path, orders: list[Row]
) -> None:
    flow = rl.Flow("small")
    counts, sums = rl.sinks.memory(), rl.sinks.memory()
    keyed = flow.read(listed(ORDERS, orders)).key_by("user")
    keyed.running_count().write(counts)
    keyed.reduce(lambda a, b: (a.user, b.n, a.amount + b.amount, b.at)).write(sums)

    run(flow, tmp_path)

    running: Counter[Any] = Counter()
    expected = []
    for user, *_ in orders:
        running[user] += 1
        expected.append((user, running[user]))
    assert Counter(counts.rows()) == Counter(expected)
    final = {r[0]: r[2] for r in sums.rows()}
    assert final == {
        u: sum(o[2] for o in orders if o[0] == u) for u in {o[0] for o in orders}
    }


def test_count_emits_a_row_per_changed_key_and_epoch(tmp_path: Path) -> None:
    rows = [("a", 1, 1.0, T0), ("b", 1, 1.0, T0), ("a", 2, 1.0, T0)]
    out = rl.sinks.memory()

    def build() -> rl.Flow:
        flow = rl.Flow("counts")
        keyed = flow.read(listed(ORDERS, rows), uid="orders").key_by("user")
        keyed.count(uid="c").write(out, uid="out")
        return flow

    run(build(), tmp_path / "store")
    rows += [("b", 3, 1.0, T0), ("c", 1, 1.0, T0)]
    run(build(), tmp_path / "store")

    assert sorted(out.epochs[0]) == [("a", 2), ("b", 1)]
    assert sorted(out.epochs[1]) == [("b", 2), ("c", 1)]
    found: dict[str, int] = dict(state(tmp_path / "store", "c", "count"))
    assert found == {"a": 2, "b": 2, "c": 1}


def test_count_goes_on_from_what_older_versions_kept(tmp_path: Path) -> None:
    """They kept ``n``, as the running count does, and emitted a row per record."""
    rows = [("a", 7, 1.0, T0)] * 3
    out = rl.sinks.memory()

    def build(method: str) -> rl.Flow:
        flow = rl.Flow("counts")
        # A key column of that name is no trouble.
        keyed = flow.read(listed(ORDERS, rows), uid="orders").key_by("n")
        getattr(keyed, method)(uid="c").write(out, uid="out")
        return flow

    run(build("running_count"), tmp_path / "store")
    rows += [("b", 7, 1.0, T0), ("c", 8, 1.0, T0)]
    run(build("count"), tmp_path / "store")

    assert out.epochs[0] == [(7, 1), (7, 2), (7, 3)]
    assert sorted(out.epochs[1]) == [(7, 4), (8, 1)]


def test_update_state_by_key_visits_every_key_in_every_epoch(tmp_path: Path) -> None:
    rows = [("a", 1, 1.0, T0), ("k" * 600, 2, 5.0, T0)]

    def build(out: Any) -> rl.Flow:
        flow = rl.Flow("update")
        flow.read(listed(ORDERS, rows)).key_by("user").update_state_by_key(
            lambda new, old: (
                None
                if not new and old == 1.0
                else (old or 0) + sum(r.amount for r in new)
            ),
            "double",
            uid="u",
        ).write(out)
        return flow

    out = rl.sinks.memory()
    run(build(out), tmp_path / "store", max_rows_per_epoch=1000)
    assert sorted(out.epochs[max(out.epochs)]) == [("a", 1.0), ("k" * 600, 5.0)]
    rows += [("b", 3, 9.0, T0)]
    again = rl.sinks.memory()
    run(build(again), tmp_path / "store", max_rows_per_epoch=1000)

    # "a" had no records and said None: it is forgotten. The long key is kept.
    assert sorted(again.epochs[max(again.epochs)]) == [("b", 9.0), ("k" * 600, 5.0)]


def test_state_follows_the_parallelism(tmp_path: Path, orders: list[Row]) -> None:
    out = rl.sinks.memory()
    for parallelism in (1, 2, 7, 3, 1, 4):
        flow = rl.Flow("rescale", key_groups=16)
        flow.read(listed(ORDERS, orders)).key_by("user").process(
            Everything(), uid="all"
        ).write(out)
        run(
            flow,
            tmp_path,
            parallelism=parallelism,
            max_rows_per_epoch=84,  # all of them in six epochs
            max_epochs=1,
        )

    expected, states = fold(orders)
    assert Counter(out.rows()) == Counter(expected)
    assert dict(state(tmp_path, "all", "spent")) == {
        u: s["spent"] for u, s in states.items()
    }
