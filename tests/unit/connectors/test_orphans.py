"""A run died between its decision and a commit; the next code has other sinks."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.snapshot.local_flow import source
from tests.unit.snapshot.small_flow import GROUPS, Row, SmallFlow, output_of

import riverlock as rl
from riverlock.core.errors import CommitRejectedError, InvalidConfigError
from riverlock.driver.region_loop import RegionDriver

ROWS: list[Row] = [(f"k{n * 7 % 5}", n % 11) for n in range(12)]


class Died(BaseException):
    pass


@dataclass
class AnyFlow(SmallFlow):
    """The small flow with a sink to choose."""

    uid: str | None = "out"
    sink: Any = None
    # A uid and an epoch.
    abandoned: tuple[str, int] | None = None

    def build(self) -> rl.Flow:
        flow = rl.Flow("small", key_groups=GROUPS)
        rows = flow.read(source("k string, v long"), uid="rows")
        sums = rows.key_by("k").process(self.process(), uid="op")
        sums.write(self.sink, uid=self.uid)
        if self.abandoned is not None:
            flow.abandoned(self.abandoned[0], epoch=self.abandoned[1])
        return flow


def files(path: Path) -> Any:
    return rl.sinks.files(str(path), format="json")


def table(folder: Path, name: str, file: str = "out.db") -> Any:
    return rl.sinks.sql(f"sqlite:///{folder / file}", table=name, create=True)


def rows_of(folder: Path, name: str, file: str = "out.db") -> Counter[Any]:
    with closing(sqlite3.connect(folder / file)) as database:
        return Counter(database.execute(f"SELECT k, total FROM {name}").fetchall())


@pytest.fixture
def dies(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run some epochs and one more, which is decided and not committed."""

    def until_decided(flow: SmallFlow, whole: int = 2) -> None:
        newest = flow.run(whole) + 1

        def mortal(_: SmallFlow, driver: RegionDriver) -> None:
            def commit(epoch: int, _: object) -> None:
                if epoch == newest:
                    raise Died

            for committer in driver.committers.values():
                monkeypatch.setattr(committer, "commit", commit)

        with monkeypatch.context() as patched:
            patched.setattr(SmallFlow, "begun", mortal)
            with pytest.raises(Died):
                flow.run(1)
        assert flow.catalog.epochs()[-1] == newest

    return until_decided


def test_files_of_a_sink_that_has_another_uid_and_place_are_completed(
    tmp_path: Path, dies: Any
) -> None:
    old = AnyFlow(tmp_path / "store", ROWS, tmp_path, sink=files(tmp_path / "old"))
    dies(old)
    new = AnyFlow(
        old.store, ROWS, tmp_path / "new", uid="alerts", sink=files(tmp_path / "new")
    )
    new.run()
    old.out = tmp_path / "old"
    assert old.written() == output_of(ROWS[:9])
    assert old.written() + new.written() == output_of(ROWS)


def test_files_whose_directory_is_gone_are_told(tmp_path: Path, dies: Any) -> None:
    old = AnyFlow(tmp_path / "store", ROWS, tmp_path, sink=files(tmp_path / "old"))
    dies(old)
    (tmp_path / "old").rename(tmp_path / "elsewhere")
    new = AnyFlow(old.store, ROWS, tmp_path, uid="new", sink=files(tmp_path / "new"))
    with pytest.raises(CommitRejectedError, match="put it back") as caught:
        new.run()
    assert "flow.abandoned('out', epoch=2)" in str(caught.value)
    assert not (tmp_path / "old").exists()
    new.abandoned = ("out", 2)
    new.run()
    (tmp_path / "elsewhere").rename(tmp_path / "old")


def test_a_delta_table_of_a_sink_that_is_gone_is_completed(
    tmp_path: Path, dies: Any
) -> None:
    from deltalake import DeltaTable

    old = AnyFlow(
        tmp_path / "store", ROWS, tmp_path, sink=rl.sinks.delta(str(tmp_path / "old"))
    )
    dies(old)
    new = AnyFlow(
        old.store, ROWS, tmp_path / "new", uid="alerts", sink=files(tmp_path / "new")
    )
    new.run()
    found = DeltaTable(str(tmp_path / "old")).to_pyarrow_table().to_pylist()
    done = Counter((row["k"], row["total"]) for row in found)
    assert done == output_of(ROWS[:9])
    assert done + new.written() == output_of(ROWS)


@pytest.mark.parametrize("uid", ["another", None])
def test_rows_that_wait_for_a_table_are_not_lost_nor_given_to_another(
    tmp_path: Path, dies: Any, uid: str | None
) -> None:
    """Another uid; or unnamed sinks, whose numbers follow the order of the code."""
    first = None if uid is None else "first"
    old = AnyFlow(
        tmp_path / "store", ROWS, tmp_path, uid=first, sink=table(tmp_path, "us")
    )
    dies(old)
    new = AnyFlow(old.store, ROWS, tmp_path, uid=uid, sink=table(tmp_path, "eu"))
    for _ in range(2):
        with pytest.raises(InvalidConfigError, match="nothing was written") as caught:
            new.run()
        text = str(caught.value)
        assert "us" in text
        assert "its 3 rows" in text
        assert rows_of(tmp_path, "us") == output_of(ROWS[:6])
        assert new.catalog.epochs()[-1] == 2

    old.run(0)  # as the error says: once with the sink as it was
    assert rows_of(tmp_path, "us") == output_of(ROWS[:9])
    new.run()
    assert rows_of(tmp_path, "us") == output_of(ROWS[:9])
    both = rows_of(tmp_path, "us") + rows_of(tmp_path, "eu")
    assert both == output_of(ROWS)


def test_rows_that_wait_for_a_table_can_be_given_up(tmp_path: Path, dies: Any) -> None:
    old = AnyFlow(tmp_path / "store", ROWS, tmp_path, sink=table(tmp_path, "us"))
    dies(old)
    for uid in ("out", "other"):
        new = AnyFlow(
            old.store,
            ROWS,
            tmp_path,
            uid=uid,
            abandoned=("out", 2),
            sink=table(tmp_path, uid),
        )
        new.run(0)
        assert rows_of(tmp_path, uid) == Counter()
    new.run()
    assert rows_of(tmp_path, "us") == output_of(ROWS[:6])
    assert rows_of(tmp_path, "other") == output_of(ROWS) - output_of(ROWS[:9])


def test_a_table_that_was_changed_after_a_whole_epoch_is_no_trouble(
    tmp_path: Path,
) -> None:
    old = AnyFlow(tmp_path / "store", ROWS, tmp_path, sink=table(tmp_path, "us"))
    old.run(2)
    new = AnyFlow(old.store, ROWS, tmp_path, sink=table(tmp_path, "eu", "eu.db"))
    new.run()
    assert rows_of(tmp_path, "us") == output_of(ROWS[:6])
    assert rows_of(tmp_path, "eu", "eu.db") == output_of(ROWS) - output_of(ROWS[:6])


def test_giving_up_an_epoch_that_is_left_in_the_code_gives_up_no_other(
    tmp_path: Path, dies: Any
) -> None:
    flow = AnyFlow(tmp_path / "store", ROWS, tmp_path, sink=table(tmp_path, "us"))
    flow.run(1)
    flow.abandoned = ("out", 0)

    dies(flow, 1)

    flow.run()
    assert rows_of(tmp_path, "us") == output_of(ROWS)


def test_an_epoch_that_is_yet_to_come_cannot_be_given_up(tmp_path: Path) -> None:
    """The store was put back, say: the next epoch of that number is another one."""
    flow = AnyFlow(tmp_path / "store", ROWS, tmp_path, sink=table(tmp_path, "us"))
    flow.run(1)
    flow.abandoned = ("out", 1)

    with pytest.raises(InvalidConfigError, match="remove it from the code"):
        flow.run(1)

    assert flow.catalog.epochs() == [0]


def test_an_epoch_that_another_run_decides_meanwhile_is_seen_to(
    tmp_path: Path, dies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was thought dead when the start looked, and decided one more."""
    old = AnyFlow(tmp_path / "store", ROWS, tmp_path, sink=files(tmp_path / "old"))
    dies(old, 1)
    manifest = old.store / old.catalog.paths.manifest(1)
    manifest.rename(tmp_path / "manifest")
    new = AnyFlow(
        old.store, ROWS, tmp_path / "new", uid="alerts", sink=files(tmp_path / "new")
    )

    def overtaken(*_: Any) -> None:
        (tmp_path / "manifest").rename(manifest)

    monkeypatch.setattr(AnyFlow, "begun", overtaken)
    new.run()
    old.out = tmp_path / "old"
    assert old.written() == output_of(ROWS[:6])
    assert old.written() + new.written() == output_of(ROWS)


def test_a_directory_that_is_gone_is_no_trouble_after_a_whole_epoch(
    tmp_path: Path,
) -> None:
    old = AnyFlow(tmp_path / "store", ROWS, tmp_path, sink=files(tmp_path / "old"))
    old.run(2)
    (tmp_path / "old").rename(tmp_path / "archive")

    new = AnyFlow(
        old.store, ROWS, tmp_path / "new", uid="new", sink=files(tmp_path / "new")
    )
    new.run()

    assert new.written() == output_of(ROWS) - output_of(ROWS[:6])
    assert not (tmp_path / "old").exists()


def test_a_table_of_another_database_is_no_trouble_after_a_whole_epoch(
    tmp_path: Path,
) -> None:
    old = AnyFlow(tmp_path / "store", ROWS, tmp_path, sink=table(tmp_path, "us"))
    old.run(2)

    new = AnyFlow(old.store, ROWS, tmp_path, sink=table(tmp_path, "us", "new.db"))
    new.run()

    assert rows_of(tmp_path, "us") == output_of(ROWS[:6])
    assert rows_of(tmp_path, "us", "new.db") == output_of(ROWS) - output_of(ROWS[:6])
