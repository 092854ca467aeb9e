from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.unit.snapshot.builders import catalog as empty
from tests.unit.snapshot.builders import manifest

import riverlock as rl
from riverlock.connectors.spark_stream.landing import LandingReader
from riverlock.core.errors import InvalidConfigError, SourceError
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.channels import Channel, Segment
from riverlock.snapshot.format.records import InputRange, Manifest
from riverlock.snapshot.format.sealed import checksum
from riverlock.snapshot.retention.expiring import Announcement
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.verbs.verify import verify
from riverlock.storage import LocalStorage

TIGHT = Retention(epochs=2, grace=timedelta(0))


def catalog(storage: LocalStorage, *manifests: Manifest) -> Catalog:
    made = empty(storage)
    for each in manifests:
        assert made.decide(each)
    return made


def land(storage: LocalStorage, number: int, *, name: str = "in") -> None:
    channel, data = Channel(storage, name), b"rows %d" % number
    path = f"{channel.root}data/{number:012d}/part-{number}.parquet"
    storage.put(path, data)
    file = {"path": path, "rows": 1, "bytes": len(data), "checksum": checksum(data)}
    segment = Segment(
        number=number, files=(file,), rows=1, writer="w", step=number, schema="a int"
    )
    assert channel.append(segment)
    for part in ("offsets", "commits"):
        storage.put(f"{channel.landing('w')}{part}/{number}", b"v1")


def reading(epoch: int, start: int, end: int, **more: str) -> Manifest:
    ends = [{**more, "segment": n} for n in (start, end)]
    inputs = {"in": InputRange(start=ends[0], end=ends[1], rows=end - start)}
    return msgspec.structs.replace(manifest(epoch), inputs=inputs)


@pytest.fixture
def store(tmp_path: Path) -> Catalog:
    """Five segments, of which epochs 1, 2 and 3 have read the first three."""
    storage = LocalStorage(tmp_path / "store")
    for number in range(5):
        land(storage, number)
    storage.put("channels/in/landing/w/metadata", b'{"id":"one"}')
    storage.put("channels/in/landing/w/sources/0/0", b"v1")
    return catalog(storage, *(reading(n + 1, n, n + 1, channel="in") for n in range(3)))


def test_segments_that_no_retained_epoch_read_are_deleted(store: Catalog) -> None:
    channel = Channel(store.storage, "in")
    for file in Path(store.storage.root).rglob("*"):  # type: ignore[attr-defined]
        os.utime(file, (1, 1))

    sweep(store, TIGHT)

    assert channel.numbers() == [1, 2, 3, 4]
    assert channel.end() == channel.end_after(2) == 5
    left = [e.path for e in store.storage.list("channels/in/data/")]
    assert [p.rpartition("-")[2][0] for p in left] == ["1", "2", "3", "4"]
    assert all(report.is_whole for report in verify(store))


def test_segments_of_an_epoch_that_is_named_during_a_sweep_stay(
    store: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = Announcement.name

    def named_before(self: Announcement, epochs: Any) -> None:
        store.pin("before-upgrade", epoch=1, now_us=1)
        name(self, epochs)

    monkeypatch.setattr(Announcement, "name", named_before)
    for file in Path(store.storage.root).rglob("*"):  # type: ignore[attr-defined]
        os.utime(file, (1, 1))

    sweep(store, TIGHT)

    assert store.epochs() == [1, 2, 3]
    assert Channel(store.storage, "in").numbers() == [0, 1, 2, 3, 4]


def test_segments_stay_for_the_grace_period(store: Catalog) -> None:
    sweep(store, Retention(epochs=1, grace=timedelta(hours=1)))

    assert Channel(store.storage, "in").numbers() == [0, 1, 2, 3, 4]


def test_the_last_segment_stays_since_landing_goes_on_from_it(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "store")
    land(storage, 0)
    read_all = catalog(storage, *(reading(n, 1, 1, channel="in") for n in (1, 2)))
    for file in (tmp_path / "store").rglob("*"):
        os.utime(file, (1, 1))

    sweep(read_all, TIGHT)

    assert Channel(storage, "in").numbers() == [0]


def test_channels_of_positions_without_a_name_are_left_alone(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "store")
    for number in range(3):
        land(storage, number)
    old = catalog(storage, reading(1, 1, 2), reading(2, 2, 3, channel="in"))
    for file in (tmp_path / "store").rglob("*"):
        os.utime(file, (1, 1))

    sweep(old, TIGHT)
    with pytest.raises(InvalidConfigError, match="positions that name their channel"):
        rl.stores.fork(f"{tmp_path / 'store'}@1", str(tmp_path / "fork"))

    assert Channel(storage, "in").numbers() == [0, 1, 2]
    assert not (tmp_path / "fork").exists()


@pytest.mark.parametrize("copy", [False, True])
def test_a_fork_has_what_landed_and_was_not_read(
    store: Catalog, tmp_path: Path, *, copy: bool
) -> None:
    source = store.storage.uri.removeprefix("file://").rstrip("/")

    rl.stores.fork(f"{source}@2", str(tmp_path / "fork"), copy=copy)

    new = Catalog(LocalStorage(tmp_path / "fork"))
    channel = Channel(new.storage, "in")
    # One that was read comes along: the query goes on from its step.
    assert channel.numbers() == [1, 2, 3, 4]
    assert new.manifest(2).inputs["in"].end == {"channel": "in", "segment": 2}
    assert all(report.is_whole for report in verify(new))
    landing = tmp_path / "fork/channels/in/landing/w"
    assert sorted(p.name for p in (landing / "offsets").iterdir()) == list("01234")
    assert (landing / "sources/0/0").read_bytes() == b"v1"
    assert json.loads((landing / "metadata").read_bytes())["id"] != "one"


def test_a_fork_takes_no_step_that_has_not_landed(
    store: Catalog, tmp_path: Path
) -> None:
    store.storage.put("channels/in/landing/w/offsets/5", b"v1")

    source = store.storage.uri.removeprefix("file://").rstrip("/")
    rl.stores.fork(f"{source}@3", str(tmp_path / "fork"))

    offsets = tmp_path / "fork/channels/in/landing/w/offsets"
    assert sorted(p.name for p in offsets.iterdir()) == list("01234")


class Quiet:
    """A streaming DataFrame and its query, with nothing to land."""

    isStreaming = True  # noqa: N815 - Spark's name

    def exception(self) -> None:
        return None


def reader_of(store: Catalog, channel: str) -> LandingReader:
    """Return a reader whose query has landed what there is."""
    source: Any = SimpleNamespace(channel=channel, build=lambda _: Quiet())
    spark = cast("Any", None)
    reader = LandingReader(spark, source, "in", store.storage, takes_all=False)
    reader._query, reader._next = Quiet(), Channel(store.storage, channel).end()
    return reader


def test_positions_of_another_channel_are_not_read_from_this_one(
    store: Catalog,
) -> None:
    with pytest.raises(SourceError, match="a segment of channel 'in'"):
        reader_of(store, "other").latest({"channel": "in", "segment": 3})


def test_positions_without_a_name_get_it_with_the_next_rows(store: Catalog) -> None:
    reader = reader_of(store, "in")

    for start, end in ((3, 5), (5, 5)):
        latest = reader.latest({"segment": start})
        found = reader.advance({"segment": start}, latest, max_rows=100)
        name = {"channel": "in"} if end > start else {}  # else nothing has changed
        assert found == latest == {**name, "segment": end}


def test_a_reader_does_not_wait_for_segments_that_were_deleted(store: Catalog) -> None:
    reader = reader_of(store, "in")
    first = reader.initial()
    assert reader.latest(first)["segment"] == 5
    for file in Path(store.storage.root).rglob("*"):  # type: ignore[attr-defined]
        os.utime(file, (1, 1))

    sweep(store, TIGHT)

    assert reader.latest({**first, "segment": 1})["segment"] == 5
    with pytest.raises(SourceError, match="segment 0 of channel 'in' was deleted"):
        reader.latest(first)
