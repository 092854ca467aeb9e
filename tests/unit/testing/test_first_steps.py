"""What newcomers write in their first hour: told in our words, with what to write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import (
    DefinitionError,
    InvalidConfigError,
    InvalidFlowError,
    RiverlockError,
    SnapshotNotFoundError,
    UserCodeError,
)
from riverlock.testing import harness, rows, run_local

COLUMNS = "user string, amount double, at timestamp"
ANN = {"user": "ann", "amount": 3.0}


def shop() -> tuple[rl.Flow, Any]:
    flow = rl.Flow("shop")
    return flow, flow.read(rows(COLUMNS, [("ann", 1.0, None)]), uid="in")


class Base(rl.Process):
    output = "user string, n long"
    n = rl.Value("long", default=0)
    seen = rl.List("long")
    shops = rl.Map("string", "long")


class MisspeltContext(Base):
    def on_event(self, r: Any, ctx: Any) -> None:
        ctx.set_timr(ctx.now)


class MisspeltList(Base):
    def on_event(self, r: Any, ctx: Any) -> None:
        self.seen.apend(1)  # type: ignore[attr-defined]


class MisspeltMap(Base):
    def on_event(self, r: Any, ctx: Any) -> None:
        self.shops.iteems()  # type: ignore[attr-defined]


class Undeclared(Base):
    def on_event(self, r: Any, ctx: Any) -> None:
        self.total += r.amount  # type: ignore[attr-defined]


class MisspeltState(Base):
    def on_event(self, r: Any, ctx: Any) -> None:
        self.n = self.shps.get("a")  # type: ignore[attr-defined]


class NoTime(Base):
    def on_event(self, r: Any, ctx: Any) -> None:
        ctx.set_timer(ctx.time + rl.minutes(1))


class TimerOfText(Base):
    def on_event(self, r: Any, ctx: Any) -> None:
        ctx.set_timer("soon")


@pytest.mark.parametrize(
    ("process", "words"),
    [
        (MisspeltContext(), ["ctx has no 'set_timr'", "did you mean 'set_timer'?"]),
        (MisspeltList(), ["a list has no 'apend'", "did you mean 'append'?"]),
        (MisspeltMap(), ["a map has no 'iteems'", "did you mean 'items'?"]),
        (Undeclared(), ["self.total", "total = rl.Value("]),
        (MisspeltState(), ["self.shps", "did you mean 'shops'?"]),
        (NoTime(), ["ctx.time is None", ".event_time("]),
        (TimerOfText(), ["set_timer() needs a datetime", "'soon'"]),
    ],
)
def test_what_is_not_there_is_told_without_names_of_ours(
    process: Base, words: list[str]
) -> None:
    h = harness(process, key="user", input=COLUMNS, uid="op")

    with pytest.raises(UserCodeError) as caught:
        h.send(ANN)

    told = str(caught.value)
    assert [w for w in words if w not in told] == []
    assert f"{__file__}:" in told
    for ours in ("OperatorContext", "Handle"):
        assert ours not in told.splitlines()[0]


def test_a_list_of_columns_to_key_by_is_told() -> None:
    with pytest.raises(InvalidFlowError, match=r"key_by\('user', 'at'\)"):
        shop()[1].key_by(["user", "at"])


def test_a_path_in_place_of_a_sink_is_told() -> None:
    with pytest.raises(InvalidFlowError, match=r"rl\.sinks\.files\('out/'"):
        shop()[1].write("out/")


def test_a_misspelt_type_of_the_output_is_told_once() -> None:
    class Misspelt(Base):
        output = "user strng"

        def on_event(self, r: Any, ctx: Any) -> None:
            pass

    with pytest.raises(InvalidFlowError, match="did you mean 'string'") as caught:
        shop()[1].key_by("user").process(Misspelt(), uid="op")

    assert str(caught.value).count("'user strng'") == 1
    assert "'op'" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("groupBy", "key_by"),
        ("groupby", "key_by"),
        ("withColumn", "with_column"),
        ("withWatermark", "event_time"),
        ("writeStream", "write"),
        ("selectExpr", "select"),
        ("dropDuplicates", "deduplicate"),
        ("flatMap", "flat_map"),
        ("unionByName", "union"),
        ("foreachBatch", "for_each_epoch"),
        ("mapInPandas", "map"),
        ("drop", "select"),
        ("join", "key_by"),
    ],
)
def test_what_pyspark_calls_otherwise_is_told(name: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=advice):
        getattr(shop()[1], name)


def test_what_pyspark_reads_with_is_told() -> None:
    flow: Any = shop()[0]

    with pytest.raises(AttributeError, match=r"flow\.read\(rl\.sources"):
        flow.readStream  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean 'start'"):
        flow.strat  # noqa: B018


@pytest.mark.parametrize("unit", ["days", "hours", "minutes", "seconds"])
def test_a_duration_of_text_is_told(unit: str) -> None:
    with pytest.raises(InvalidConfigError, match=rf"{unit}\(\) needs a number.*'ten'"):
        getattr(rl, unit)("ten")


def test_a_sink_that_a_local_run_does_not_have_is_told() -> None:
    flow, stream = shop()
    stream.write(rl.sinks.memory(), uid="out")
    run = run_local(flow, [("ann", 1.0, None)])

    with pytest.raises(InvalidConfigError, match="did you mean 'out'"):
        run.rows("ot")
    with pytest.raises(InvalidConfigError, match="operator 'op'"):
        run.operator("op")
    stream.write(rl.sinks.memory(), uid="more")
    with pytest.raises(InvalidConfigError, match="one of out, more"):
        run_local(flow, [("ann", 1.0, None)]).rows()


def stop_after_text(handle: Any) -> None:
    handle.stop("30")


def wait_for_text(handle: Any) -> None:
    handle.wait("30")


def rescale_to_text(handle: Any) -> None:
    handle.rescale("2")


def misspelt_protocol(handle: Any) -> None:
    handle.savepoint("v1", protocol="alignd")


def no_name(handle: Any) -> None:
    handle.savepoint(None)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (stop_after_text, "stop.* needs seconds as a number, got '30'"),
        (wait_for_text, "wait.* needs seconds as a number, got '30'"),
        (rescale_to_text, "parallelism needs a whole number of at least 1, got '2'"),
        (misspelt_protocol, "did you mean 'aligned'"),
        (no_name, "snapshot name needs"),
    ],
)
def test_what_a_handle_is_asked_wrongly_stops_nothing(
    tmp_path: Path, use: Callable[[Any], None], words: str
) -> None:
    flow, stream = shop()
    stream.write(rl.sinks.memory(), uid="out")
    reached = threading.Event()
    handle = flow.start(
        str(tmp_path), execution="local", on_status=lambda _: reached.set()
    )
    try:
        assert reached.wait(60)
        with pytest.raises(DefinitionError, match=words) as caught:
            use(handle)
        assert f"{__file__}:" in str(caught.value)
        assert handle.is_active
    finally:
        handle.stop(60)


@pytest.fixture
def cut(tmp_path: Path) -> str:
    """A store of two regions with a savepoint; nobody runs it."""
    flow, stream = shop()
    stream.region("apart", uid="to").write(rl.sinks.memory(), uid="out")
    handle = flow.start(str(tmp_path), execution="local")
    try:
        handle.savepoint("v1")
    finally:
        handle.stop(60)
    return str(tmp_path)


def test_a_restore_of_all_needs_a_name(cut: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"needs store@name") as caught:
        rl.stores.restore_all(cut)
    assert "v1" in str(caught.value)
    with pytest.raises(SnapshotNotFoundError, match=r"'v2'.*v1"):
        rl.stores.restore_all(f"{cut}@v2")


def test_a_savepoint_of_regions_that_do_not_run_is_refused_at_once(cut: str) -> None:
    with pytest.raises(RiverlockError, match="start the flow"):
        rl.stores.savepoint(cut, "v2")


def test_a_plan_to_go_back_with_all_is_a_readable_line(cut: str) -> None:
    told = str(rl.stores.restore_all(f"{cut}@v1", dry_run=True))

    assert told.startswith("back to v1: ")
    assert "apart to epoch " in told
    assert len(told) < 200
