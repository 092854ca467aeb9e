"""Channels that a keyed region reads by key group: as without, whoever reads them."""

from __future__ import annotations

import random
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import riverlock as rl
from riverlock.connectors.channel.rows import Shares
from riverlock.flow.inside import program_of
from riverlock.program import regions
from riverlock.program.channel_keys import channel_keys, read_at_once
from riverlock.query.in_flight import InFlightRows
from riverlock.snapshot import channel_files
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.records import InFlight
from riverlock.snapshot.in_flight import Between
from riverlock.snapshot.verbs.first_epochs import FirstEpochs
from riverlock.storage.open import open_storage
from riverlock.testing import rows

COLUMNS = "k string, other long, n long"


class Passed(rl.Process):
    """Sends on what it gets, more than once."""

    output = COLUMNS
    seen = rl.Value("long", default=0)

    def on_event(self, e: Any, ctx: rl.Context) -> Any:
        self.seen += 1
        for more in range(e.n % 3):
            yield e.k, e.other, e.n * 10 + more


class Listed(rl.Process):
    """Tells the order in which a key gets its records."""

    output = "other long, n long, place long"
    seen = rl.Value("long", default=0)

    def on_event(self, e: Any, ctx: rl.Context) -> Any:
        self.seen += 1
        yield e.other, e.n, self.seen


def given(count: int) -> list[Any]:
    return [(f"k{n % 7}", n * 31 % 23, n) for n in range(count)]


def flow_of(records: list[Any], sink: Any, *, pace: int | None = None) -> rl.Flow:
    flow = rl.Flow("shares", key_groups=16)
    read = flow.read(rows(COLUMNS, records), uid="in")
    passed = read.key_by("k").process(Passed(), uid="passed")
    entered = passed.region("second", uid="x", parallelism=pace)
    kept = entered.filter(lambda e: e.n % 5 != 0, uid="kept")
    kept.key_by("other").process(Listed(), uid="listed").write(sink, uid="out")
    return flow


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_files, "_ROWS_PER_PART", 8)
    monkeypatch.setattr(channel_files, "_FOOTER_ROWS", 0)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tasks that have read their own rows."""
    found: list[int] = []
    read = Shares.read

    def watched(self: Shares, task: int) -> Any:
        found.append(task)
        return read(self, task)

    monkeypatch.setattr(Shares, "read", watched)
    return found


def assert_by_turns(keys: list[str]) -> None:
    """Check that rows of a key are not apart: an operator takes key by key."""
    assert len(list(groupby(keys))) == len(set(keys)) == 7


def run(flow: rl.Flow, store: str, **options: Any) -> None:
    flow.run(store, execution="local", available_now=True, **options)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 12))]
)
def test_rows_and_their_order_are_the_same_with_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: list[int], seed: int
) -> None:
    chance = random.Random(seed)
    turns = [
        {
            "count": 60 * (turn + 1),
            "writers": chance.randrange(1, 5),
            "readers": chance.randrange(1, 8),
            "rows": chance.choice([11, 50, 1_000]),
        }
        for turn in range(3)
    ]

    def live(store: str, is_by_key: list[bool]) -> list[Any]:
        sink = rl.sinks.memory()
        for turn, by_key in zip(turns, is_by_key, strict=True):
            with monkeypatch.context() as patched:
                if not by_key:
                    patched.setattr(regions, "channel_keys", lambda _: {})
                run(
                    flow_of(given(turn["count"]), sink, pace=turn["readers"]),
                    store,
                    parallelism=turn["writers"],
                    max_rows_per_epoch=turn["rows"],
                )
        assert rl.stores.verify(store).is_whole
        return sink.rows()

    def by_key(found: list[Any]) -> dict[int, list[Any]]:
        mine: dict[int, list[Any]] = {}
        for other, n, place in found:
            mine.setdefault(other, []).append((place, n))
        return mine

    without = live(str(tmp_path / "without"), [False, False, False])
    assert not shared
    assert by_key(live(str(tmp_path / "with"), [True, True, True])) == by_key(without)
    assert shared
    # Channels that were begun without keys, or go on without them.
    mixed = live(str(tmp_path / "mixed"), [False, True, False])
    assert by_key(mixed) == by_key(without)


@pytest.mark.usefixtures("small_parts")
def test_other_readers_get_rows_as_they_were_sent(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    run(flow_of(given(50), rl.sinks.memory()), store, region="main")
    manifest = Catalog(open_storage(store)).newest()
    assert manifest is not None
    columns = manifest.outputs["x"].columns
    assert columns is not None
    assert columns.keys == "other bigint"
    # The code of the region behind is another one by now: it takes rows as they come.
    flow = rl.Flow("shares", key_groups=16)
    read = flow.read(rows(COLUMNS, given(50)), uid="in")
    passed = read.key_by("k").process(Passed(), uid="passed")
    taken = rl.sinks.memory()
    passed.region("second", uid="x").write(taken, uid="plain")
    run(flow, store)
    wanted = [row for row in given(50) for _ in range(row[2] % 3)]
    found = [(k, other, n // 10) for k, other, n in taken.rows()]
    for key in {k for k, *_ in wanted}:
        mine = [row for row in found if row[0] == key]
        assert mine == [row for row in wanted if row[0] == key]
    # Keys of one task come one after the other, as the operator emits them.
    assert_by_turns([k for k, *_ in found])


@pytest.mark.usefixtures("small_parts")
def test_rows_in_flight_are_shown_as_they_were_sent(tmp_path: Path) -> None:
    store = str(tmp_path / "s")
    run(flow_of(given(50), rl.sinks.memory()), store, region="main")
    storage = open_storage(store)
    manifest = Catalog(storage).newest()
    assert manifest is not None
    output = manifest.outputs["x"]
    span = InFlight(channel="x", writer="main", reader="second", first=0, end=1)
    between = Between(
        span=span, source="x-read", columns=output.columns, outputs={0: output}
    )
    rows = InFlightRows(storage, between)
    found = [row["k"] for batch in rows.batches() for row in batch.to_pylist()]
    assert len(found) == output.rows > 8
    assert_by_turns(found)
    assert set(rows.schema.names) == {"writer_epoch", "k", "other", "n"}


def test_a_replay_compares_rows_however_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = str(tmp_path / "s")
    with monkeypatch.context() as patched:
        patched.setattr(regions, "channel_keys", lambda _: {})
        run(flow_of(given(40), rl.sinks.memory()), store)
    flow = flow_of(given(40), rl.sinks.memory())
    for region in ("main", "second"):
        assert flow.replay(store, 0, region=region, execution="local").matches


def test_a_fork_joins_files_by_key_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = str(tmp_path / "s")
    with monkeypatch.context() as patched:
        patched.setattr(regions, "channel_keys", lambda _: {})
        run(flow_of(given(20), rl.sinks.memory()), store, region="main")
    run(flow_of(given(40), rl.sinks.memory()), store, region="main")
    main = Catalog(open_storage(store))
    manifests = [main.manifest(epoch) for epoch in main.epochs()]
    claimed = main.newest_run()
    assert claimed is not None

    def keys_of(first: int) -> str:
        mine = {m.epoch: m.outputs["x"] for m in manifests[first:]}
        newest = manifests[-1]
        between = Between(
            span=InFlight(
                channel="x",
                writer="main",
                reader="second",
                first=first,
                end=newest.epoch + 1,
            ),
            source="x-read",
            columns=newest.outputs["x"].columns,
            outputs=mine,
        )
        fork = FirstEpochs(flow="other", parent=None, between=(between,))
        found = fork.of(newest, claimed, now_us=0).outputs["x"].columns
        assert found is not None
        return found.keys

    assert keys_of(0) == ""
    assert keys_of(1) == "other bigint"


def keyed_at_once(make: Any) -> dict[str, tuple[str, ...]]:
    flow = rl.Flow("some", key_groups=8)
    read = flow.read(rows(COLUMNS, []), uid="in")
    make(read.region("b", uid="x"))
    return dict(channel_keys(program_of(flow)))


def test_keys_are_known_where_nothing_changes_them_on_the_way() -> None:
    def count(stream: Any, *keys: str, uid: str = "c") -> Any:
        return stream.key_by(*keys).running_count(uid=uid)

    assert keyed_at_once(lambda s: count(s, "k")) == {"x": ("k",)}
    assert keyed_at_once(lambda s: count(s, "other", "k")) == {"x": ("other", "k")}
    assert keyed_at_once(lambda s: count(s.where("n > 1"), "k")) == {"x": ("k",)}
    assert keyed_at_once(lambda s: count(s.select("n", "k"), "k")) == {"x": ("k",)}
    plus = keyed_at_once(lambda s: count(s.with_column("n", "n + 1"), "k"))
    assert plus == {"x": ("k",)}
    even = keyed_at_once(lambda s: count(s.filter(lambda e: e.n % 2 == 0), "k"))
    assert even == {"x": ("k",)}

    def twice(stream: Any, *, other: str) -> None:
        count(stream, "k", uid="one")
        count(stream, other, uid="two")

    assert keyed_at_once(lambda s: twice(s, other="k")) == {"x": ("k",)}
    for make in (
        lambda s: twice(s, other="n"),
        lambda s: count(s.with_column("k", "'x'"), "k"),
        lambda s: count(s.select("n AS k"), "k"),
        lambda s: count(s.where("n IN (SELECT 1)"), "k"),
        lambda s: count(s.transform(lambda frame: frame), "k"),
        lambda s: count(s.map(lambda e: (e.k,), "k string"), "k"),
        lambda s: count(s.union(s), "k"),
        lambda s: s.write(rl.sinks.memory(), uid="out"),
        lambda s: (count(s, "k"), s.write(rl.sinks.memory(), uid="out")),
        lambda s: s.region("d", uid="y").key_by("k").running_count(uid="c"),
    ):
        assert "x" not in keyed_at_once(make)


def test_only_channels_are_read_by_key() -> None:
    flow = rl.Flow("some", key_groups=8)
    flow.read(rows(COLUMNS, []), uid="in").key_by("k").running_count(uid="c")
    (node,) = program_of(flow).keyed
    assert read_at_once(node) is None
