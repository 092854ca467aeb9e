"""Delta tables, as Delta's own reader sees them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import riverlock as rl
from riverlock.connectors.base.committer import Owner
from riverlock.connectors.base.sink import SinkUse
from riverlock.connectors.base.stager import StagePoint
from riverlock.connectors.delta.sink import DeltaCommitter, DeltaSink
from riverlock.core.errors import (
    CommitRejectedError,
    FencedError,
    InvalidConfigError,
    InvalidFlowError,
)
from riverlock.core.types import schema_of
from riverlock.snapshot.format.records import SinkOutput
from riverlock.snapshot.past import Commit
from riverlock.storage.local import LocalStorage

SCHEMA = schema_of("user string, n bigint, at timestamp")


def use(*, replaces: bool = False, schema: str | None = None) -> SinkUse:
    columns = SCHEMA if schema is None else schema_of(schema)
    return SinkUse(uid="out", schema=columns, replaces=replaces)


def rows(*users: str | None) -> pa.Table:
    return pa.table(
        {
            "user": pa.array(users, pa.string()),
            "n": pa.array(range(len(users)), pa.int64()),
            "at": pa.array([10**15] * len(users), pa.timestamp("us", "UTC")),
        }
    )


def staged(sink: DeltaSink, table: pa.Table, epoch: int, attempt: str) -> list[Any]:
    storage = LocalStorage(Path(sink.path).parent / "store")
    at = StagePoint(storage=storage, folder="e", epoch=epoch, attempt=attempt, flow="f")
    return sink.stager(use()).stage(table, at)


def opened(sink: DeltaSink, run: int = 1, *, replaces: bool = False) -> DeltaCommitter:
    storage = LocalStorage(Path(sink.path).parent / "store")
    committer = sink.committer(use(replaces=replaces), storage)
    committer.open(Owner(flow="f", sink="out", run=run))
    return committer


def output(*tokens: Any) -> SinkOutput:
    return SinkOutput(kind="delta", tokens=tuple(tokens))


def users(sink: DeltaSink) -> Counter[str | None]:
    return Counter(DeltaTable(sink.path).to_pyarrow_table()["user"].to_pylist())


@pytest.fixture
def sink(tmp_path: Path) -> DeltaSink:
    return rl.sinks.delta(str(tmp_path / "table"))


def test_an_epoch_is_one_commit_and_what_was_not_voted_for_is_invisible(
    sink: DeltaSink,
) -> None:
    committer = opened(sink)
    voted = staged(sink, rows("ann", "bob"), 1, "a") + staged(sink, rows("cid"), 1, "b")
    staged(sink, rows("ghost"), 1, "c")
    assert users(sink) == {}

    committer.commit(1, output(*voted))
    committer.commit(2, output())  # nothing came

    assert users(sink) == Counter(["ann", "bob", "cid"])
    assert DeltaTable(sink.path).version() == 1
    found = DeltaTable(sink.path).to_pyarrow_table().sort_by("user")
    assert found.select(["user", "n", "at"]).slice(0, 2).to_pylist() == (
        rows("ann", "bob").to_pylist()
    )


def test_an_epoch_that_was_committed_is_not_committed_again(sink: DeltaSink) -> None:
    first = opened(sink, run=1)
    voted = output(*staged(sink, rows("ann"), 1, "a"))
    first.commit(1, voted)

    second = opened(sink, run=2)
    second.commit(1, voted)
    second.commit(2, output(*staged(sink, rows("bob"), 2, "b")))
    with pytest.raises(FencedError, match="another copy"):
        first.commit(1, voted)  # a run that slept

    assert users(sink) == Counter(["ann", "bob"])


def test_of_two_runs_that_commit_at_once_one_does(
    sink: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = opened(sink, run=1), opened(sink, run=2)
    voted = output(*staged(sink, rows("ann"), 1, "a"))
    read = DeltaCommitter._has
    others = [lambda: quick.commit(1, voted)]

    def overtaken(self: DeltaCommitter, table: Any, wanted: Commit) -> bool:
        found = read(self, table, wanted)
        if others:
            others.pop()()  # after the slow one has read the table
        return found

    monkeypatch.setattr(DeltaCommitter, "_has", overtaken)
    slow.commit(1, voted)

    assert not others
    assert users(sink) == Counter(["ann"])


def test_mode_complete_replaces_the_rows(sink: DeltaSink) -> None:
    committer = opened(sink, replaces=True)
    committer.commit(1, output(*staged(sink, rows("ann", "bob"), 1, "a")))
    committer.commit(2, output(*staged(sink, rows("cid"), 2, "b")))
    assert users(sink) == Counter(["cid"])


def test_partitions_keep_any_value(tmp_path: Path) -> None:
    sink = rl.sinks.delta(str(tmp_path / "table"), partition_by="user")
    odd = ["a b", "50%", "x/y=z", "ü", "a:b", None, "+"]
    opened(sink).commit(1, output(*staged(sink, rows(*odd), 1, "a")))

    found = DeltaTable(sink.path).to_pyarrow_table()
    assert dict(
        zip(found["user"].to_pylist(), found["n"].to_pylist(), strict=True)
    ) == {user: n for n, user in enumerate(odd)}


def test_a_table_with_other_columns_is_refused_before_anything_runs(
    sink: DeltaSink,
) -> None:
    opened(sink)
    other = sink.committer(
        use(schema="user string, n int"), LocalStorage(Path(sink.path))
    )
    with pytest.raises(InvalidConfigError, match="n long, at timestamp"):
        other.open(Owner(flow="f", sink="out", run=1))


@pytest.mark.parametrize(
    ("columns", "message"),
    [("nobody", "one of user, n, at"), ("at", "got at timestamp")],
)
def test_partitions_that_cannot_be_are_refused(
    tmp_path: Path, columns: str, message: str
) -> None:
    sink = rl.sinks.delta(str(tmp_path / "table"), partition_by=columns)
    with pytest.raises(InvalidFlowError, match=message):
        sink.stager(use())


def test_an_epoch_goes_to_the_table_it_was_decided_for(
    sink: DeltaSink, tmp_path: Path
) -> None:
    voted = output(*staged(sink, rows("ann"), 1, "a"))
    opened(sink)
    elsewhere = rl.sinks.delta(str(tmp_path / "other"))
    opened(elsewhere).commit(1, voted)
    assert users(sink) == Counter(["ann"])
    assert users(elsewhere) == {}

    lost = output(*staged(sink, rows("bob"), 2, "a"))
    Path(sink.path, lost.tokens[0]["file"]).unlink()
    with pytest.raises(CommitRejectedError, match="put that table back"):
        opened(elsewhere).commit(2, lost)
