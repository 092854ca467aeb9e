"""What a database remembers of epochs, and a store that is not the one that wrote."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.databases.places import (
    Place,
    SqlitePlace,
    mariadb_place,
    postgres_place,
)
from tests.unit.snapshot.local_flow import source
from tests.unit.snapshot.small_flow import GROUPS, Row, SmallFlow, output_of

import riverlock as rl
from riverlock.core.errors import FencedError, ForeignEpochError, InvalidConfigError

SERVERS: dict[str, Any] = {"postgres": postgres_place, "mariadb": mariadb_place}
ROWS: list[Row] = [(f"k{n * 7 % 5}", n % 11) for n in range(30)]


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return SqlitePlace(tmp_path)
    made: Place = SERVERS[request.param](request.getfixturevalue(request.param))
    return made


@dataclass
class TableFlow(SmallFlow):
    """The small flow, whose sums go to a table."""

    place: Any = None

    def build(self) -> rl.Flow:
        flow = rl.Flow("small", key_groups=GROUPS)
        rows = flow.read(source("k string, v long"), uid="rows")
        name = "out" if self.place.schema is None else f"{self.place.schema}.out"
        sink = rl.sinks.sql(self.place.url, table=name, create=True)
        rows.key_by("k").process(self.process(), uid="op").write(sink, uid="out")
        return flow

    def output(self) -> Counter[Row]:
        (rows,) = self.place.snapshot("SELECT k, total FROM {}out")
        return Counter(tuple(row) for row in rows)

    def tell(self, *statements: str) -> None:
        """Do what an administrator does."""
        if isinstance(self.place, SqlitePlace):
            self.place.snapshot(*statements, "COMMIT")
            return
        for statement in statements:
            schema = f"{self.place.schema}."
            self.place.server.query(statement.replace("{}", schema))


@pytest.fixture
def flow(place: Place, tmp_path: Path) -> TableFlow:
    return TableFlow(tmp_path / "store", ROWS, tmp_path, place=place)


def copied(flow: TableFlow, name: str) -> TableFlow:
    store = flow.store.with_name(name)
    shutil.copytree(flow.store, store)
    return TableFlow(store, ROWS, flow.out, place=flow.place)


def test_a_store_put_back_is_refused_before_it_writes(flow: TableFlow) -> None:
    flow.run(4)
    backup = copied(flow, "backup")
    flow.run(2)
    before = flow.output()

    for _ in range(2):  # each start has another number
        with pytest.raises(ForeignEpochError) as caught:
            backup.run(epoch_rows=9)
        text = str(caught.value)
        assert "has an epoch 5 that this store has not decided" in text
        assert "its newest is 3" in text
        assert "nothing was written" in text
        assert backup.catalog.epochs()[-1] == 3
        assert flow.output() == before

    flow.run()  # the one that wrote goes on
    assert flow.output() == output_of(ROWS)


def test_a_copy_that_is_as_far_goes_on_and_the_other_one_stops(flow: TableFlow) -> None:
    flow.run(2)
    copy = copied(flow, "copy")
    seen: list[Counter[Row]] = []

    def overtake(_: object) -> None:
        if not seen:
            copy.run(2)
            seen.append(copy.output())

    flow.run(0)  # has more runs than the copy knows, and no more epochs
    flow.after = overtake
    with pytest.raises(FencedError, match="of another copy of the store"):
        flow.run()
    assert seen == [flow.output()], "it changed nothing"
    copy.run()
    assert copy.output() == output_of(ROWS)


def test_a_row_of_epochs_that_is_gone_is_told_before_anything_is_written(
    flow: TableFlow,
) -> None:
    flow.run(4)
    flow.tell("DELETE FROM {}riverlock_epochs")
    for _ in range(2):
        with pytest.raises(InvalidConfigError, match="nothing was written") as caught:
            flow.run()
        assert flow.output() == output_of(ROWS[:12])

    # As the error says, if the table has the rows of the newest epoch.
    (told,) = re.findall(r"INSERT INTO \S+ .*?\)(?=;)", str(caught.value))
    flow.tell(told)
    flow.run()
    assert flow.output() == output_of(ROWS)


def test_a_table_of_epochs_that_the_version_before_made_is_used(
    flow: TableFlow,
) -> None:
    flow.run(3)
    backup = copied(flow, "backup")
    flow.run(2)
    flow.tell(
        "ALTER TABLE {}riverlock_epochs DROP COLUMN opened",
        "ALTER TABLE {}riverlock_epochs DROP COLUMN decided",
    )
    with pytest.raises(ForeignEpochError):
        backup.run()  # its number is proof enough
    flow.run(1)
    flow.run()
    assert flow.output() == output_of(ROWS)
