from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.snapshot.killing import killed_at
from tests.unit.snapshot.small_flow import SmallFlow, output_of, state_of

import riverlock as rl
from riverlock.core.errors import (
    RiverlockError,
    SnapshotCorruptedError,
    SnapshotNotFoundError,
)
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.channels import Channel, Segment
from riverlock.snapshot.format.records import (
    InputRange,
    LeaseRecord,
    SinkOutput,
    SinkPlace,
    Stop,
)
from riverlock.snapshot.format.requests import add_request
from riverlock.snapshot.format.sealed import checksum, seal
from riverlock.snapshot.format.store_layout import lease_path

ROWS = [(f"k{n * 7 % 5}", n % 11) for n in range(15)]


def put(catalog: Catalog, path: str, data: bytes) -> dict[str, object]:
    catalog.storage.put(path, data)
    found = {"path": path, "rows": 1, "bytes": len(data), "checksum": checksum(data)}
    return dict(found)


def every_kind(root: Path) -> SmallFlow:
    """Make a store that has every kind of file that a store can have."""
    flow = SmallFlow(root / "store", ROWS, root / "out")
    flow.run(3)
    catalog = flow.catalog
    newest = catalog.resolve(None)
    listed = b'{"files":[]}'
    base = f"{catalog.paths.sources}rows/{checksum(listed)}.json"
    catalog.storage.put(base, listed)
    token = put(catalog, f"{catalog.paths.staged}{3:012d}/a-db.parquet", b"rows")
    offset = {"base": base, "at": 9}
    catalog.decide(
        msgspec.structs.replace(
            newest,
            epoch=3,
            parent=2,
            inputs={"rows": InputRange(start=offset, end=offset, rows=0)},
            outputs={"db": SinkOutput(kind="sql", tokens=(token,), rows=1)},
        )
    )
    catalog.pin("v1", epoch=2, now_us=1)
    run = catalog.newest_run()
    assert run is not None
    add_request(catalog, Stop(run=run.run, savepoint="v2"), now_us=1)
    lease = LeaseRecord(id="0" * 32, regions={"main": 1}, expires_us=1)
    assert catalog.hold(lease_path(lease.id), lease, epoch=1)
    rl.stores.fork(f"{flow.store}@1", str(root / "fork"))
    landed = put(catalog, f"channels/in/data/{0:012d}/x.parquet", b"landed")
    segment = Segment(
        number=0, files=(landed,), rows=1, writer="w", step=0, schema="v long"
    )
    assert Channel(catalog.storage, "in").append(segment)
    place = SinkPlace(flow=newest.flow, cluster="c")
    catalog.storage.put("sinks/topic.json", seal(place))
    shutil.rmtree(flow.store / ".working")
    return flow


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kinds")
    every_kind(root)
    return root


def files_of(store: Path) -> list[Path]:
    found = [p for p in store.rglob("*") if p.is_file()]
    return sorted(p for p in found if ".tmp" not in p.parts)


def is_noticed(store: Path) -> bool:
    try:
        return not rl.stores.verify(str(store)).is_whole
    except RiverlockError:
        return True


def test_the_store_has_every_kind_of_file_and_is_whole(stores: Path) -> None:
    names = {
        re.sub(r"[0-9a-f]{32}|\d+", "N", str(p.relative_to(stores)).partition("/")[2])
        for place in ("store", "fork")
        for p in files_of(stores / place)
    }
    kinds = {re.sub(r"/N-.*", "/N-x", n) for n in names}

    assert kinds == {
        "flow.json",
        "regions/main/runs/N.json",
        "regions/main/epochs/N.json",
        "regions/main/state/op/N-x",
        "regions/main/staged/N/a-db.parquet",
        "regions/main/sources/rows/N.json",
        "regions/main/owner.json",
        "regions/main/status.json",
        "regions/main/requests/N.json",
        "sinks/topic.json",
        "snapshots/vN.json",
        "leases/N.json",
        "forks/N.json",
        "parents/N.json",
        "channels/in/segments/N.json",
        "channels/in/data/N/x.parquet",
    }
    for place in ("store", "fork"):
        found = rl.stores.verify(str(stores / place))
        assert found.damages == ()
        assert found.foreign == ()
        assert found.leftovers == ()


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_flipped_bit_anywhere_is_noticed(stores: Path, data: st.DataObject) -> None:
    place = stores / data.draw(st.sampled_from(["store", "fork"]))
    file = data.draw(st.sampled_from(files_of(place)))
    before = file.read_bytes()
    at = data.draw(st.integers(0, len(before) - 1))
    content = bytearray(before)
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(bytes(content))
    try:
        assert is_noticed(place)
    finally:
        file.write_bytes(before)


def test_a_flipped_bit_in_each_file_is_noticed(stores: Path) -> None:
    for place in ("store", "fork"):
        for file in files_of(stores / place):
            before = file.read_bytes()
            for at in (0, len(before) // 2, len(before) - 1):
                content = bytearray(before)
                content[at] ^= 1
                file.write_bytes(bytes(content))
                noticed = is_noticed(stores / place)
                file.write_bytes(before)

                assert noticed, f"byte {at} of {file.relative_to(stores)}"


def test_a_missing_file_is_noticed_with_what_it_affects(stores: Path) -> None:
    store = stores / "store"
    must = ("state/op", "staged", "sources", "data")
    for file in (f for f in files_of(store) if any(m in str(f) for m in must)):
        before = file.read_bytes()
        file.unlink()
        (damage,) = rl.stores.verify(str(store)).damages
        file.write_bytes(before)

        assert damage.path == str(file.relative_to(store))
        assert damage.affects


@pytest.fixture
def flow(tmp_path: Path) -> SmallFlow:
    """Five epochs of three rows each."""
    made = SmallFlow(tmp_path / "store", ROWS, tmp_path / "out")
    assert made.run() == 4
    return made


def state_file(flow: SmallFlow, epoch: int) -> Path:
    return next((flow.store / "regions/main/state/op").glob(f"{epoch:012d}-*"))


def test_repair_goes_back_and_moves_aside(flow: SmallFlow) -> None:
    file = state_file(flow, 3)
    file.write_bytes(b"damaged")
    (flow.store / "notes.txt").write_text("mine")
    flow.catalog.pin("v0", epoch=1, now_us=1)
    before = {str(p.relative_to(flow.store)) for p in files_of(flow.store)}
    damage = rl.stores.verify(str(flow.store)).damages[0]

    plan = rl.stores.repair(str(flow.store))

    assert damage.affects == (
        "operator op, key groups 0 to 15, in epoch 3;"
        " operator op, key groups 0 to 15, in epoch 4"
    )
    assert plan.lost == (3, 4)
    assert plan.restore is not None
    assert (plan.restore.target.epoch, plan.restore.epoch) == (2, 5)
    assert rl.stores.verify(str(flow.store)).is_whole
    assert flow.state() == state_of(ROWS[:9])
    moved = {
        str(p.relative_to(flow.store)).split("/", 2)[2]
        for p in files_of(flow.store / "quarantine")
    }
    assert moved == set(plan.moved)
    assert {str(file.relative_to(flow.store)), "notes.txt"} <= moved <= before
    assert next(flow.store.glob("quarantine/*/notes.txt")).read_text() == "mine"
    flow.run()
    assert flow.state() == state_of(ROWS)
    assert flow.output() == output_of(ROWS)


@pytest.mark.parametrize(
    ("content", "is_damaged"),
    [
        (seal(SinkPlace(flow="f", cluster="c")), False),
        (b'{"flow":"f","cluster":"c"}', False),  # of an older writer
        (seal(SinkPlace(flow="f", cluster="c")).replace(b"c", b"d"), True),
    ],
    ids=["whole", "unsealed", "damaged"],
)
def test_what_a_sink_remembers_stays_where_it_is(
    flow: SmallFlow, content: bytes, *, is_damaged: bool
) -> None:
    # Without it a sink of Kafka cannot tell that its markers are gone.
    remembered = flow.store / "sinks/topic.json"
    remembered.parent.mkdir()
    remembered.write_bytes(content)
    state_file(flow, 4).write_bytes(b"damaged")

    plan = rl.stores.repair(str(flow.store))

    assert plan.restore is not None
    assert "sinks/topic.json" not in plan.moved
    assert remembered.read_bytes() == content
    left = ["sinks/topic.json"] if is_damaged else []
    assert [d.path for d in plan.left] == left


@pytest.mark.parametrize("name", ["epochs/000000000004", "runs/000000000001"])
def test_damaged_records_do_not_stand_in_the_way(flow: SmallFlow, name: str) -> None:
    path = flow.store / "regions/main" / f"{name}.json"
    path.write_bytes(path.read_bytes()[:-20])

    rl.stores.repair(str(flow.store))

    assert rl.stores.verify(str(flow.store)).is_whole
    flow.run()
    assert flow.state() == state_of(ROWS)
    assert flow.output() == output_of(ROWS)
    run = flow.catalog.newest_run()
    assert run is not None
    assert run.run > 1


@pytest.mark.parametrize(("point", "count"), [("V3", 1), ("V4", 1), ("V4", 2)])
def test_a_repair_that_is_killed_is_gone_on_with(
    flow: SmallFlow, point: str, count: int
) -> None:
    state_file(flow, 3).write_bytes(b"damaged")

    assert killed_at(point, lambda: rl.stores.repair(str(flow.store)), count=count)
    assert flow.state() == state_of(ROWS[:9])
    rl.stores.repair(str(flow.store))

    assert rl.stores.verify(str(flow.store)).is_whole
    flow.run()
    assert flow.state() == state_of(ROWS)
    assert flow.output() == output_of(ROWS)


def test_what_cannot_be_repaired_is_said(flow: SmallFlow) -> None:
    state_file(flow, 0).unlink()
    with pytest.raises(SnapshotNotFoundError, match="a whole epoch"):
        rl.stores.repair(str(flow.store))
    path = flow.store / "flow.json"
    path.write_bytes(path.read_bytes().replace(b"small", b"Small"))
    with pytest.raises(SnapshotCorruptedError, match=r"flow\.json"):
        rl.stores.repair(str(flow.store))


def test_a_store_that_is_whole_needs_no_repair(flow: SmallFlow) -> None:
    plan = rl.stores.repair(str(flow.store))

    assert not plan.is_needed
    assert flow.catalog.epochs() == [0, 1, 2, 3, 4]
    assert not (flow.store / "quarantine").exists()


def test_a_manifest_of_another_number_is_noticed(flow: SmallFlow) -> None:
    manifests = flow.store / "regions/main/epochs"
    shutil.copy(manifests / f"{1:012d}.json", manifests / f"{4:012d}.json")

    found = rl.stores.verify(str(flow.store))

    assert found.newest_whole == 3
    assert "epoch 1 of flow" in found.damages[0].problem
