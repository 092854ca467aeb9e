"""Delta's own RESTORE takes rows back and leaves what the table says of epochs."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.unit.connectors.test_sink_put_back import ROWS, Written, made
from tests.unit.snapshot.small_flow import output_of

from riverlock.connectors.delta.delta_history import Sight, sight_of
from riverlock.core.errors import CommitRejectedError
from riverlock.snapshot.verbs.restore import plan_restore, restore


@pytest.fixture
def flow(tmp_path: Path) -> Written:
    """Write epochs 0 to 6, which are the versions 1 to 7 of the table."""
    flow = made(tmp_path, "delta")
    flow.run(3)
    flow.run(4)
    return flow


def table(flow: Written) -> DeltaTable:
    return DeltaTable(str(flow.out))


def test_a_table_that_was_taken_back_ends_the_start(flow: Written) -> None:
    table(flow).restore(3)
    table(flow).optimize.compact()

    with pytest.raises(CommitRejectedError, match="epochs 3 to 6, which it had"):
        flow.run()

    assert flow.output() == output_of(ROWS[:9])


def test_a_table_that_was_put_forward_again_lacks_nothing(flow: Written) -> None:
    table(flow).restore(3)
    table(flow).restore(5)
    table(flow).restore(7)
    flow.run()
    assert flow.output() == output_of(ROWS)
    flow.run()


def test_a_flow_goes_back_to_where_its_table_is(flow: Written) -> None:
    table(flow).restore(3)
    for target, lost in ((4, "epochs 3 to 4"), (2, None)):
        catalog = flow.catalog
        plan = plan_restore(catalog, catalog.manifest(target))
        restore(catalog, plan, now_us=flow.clock.now_us())
        if lost is not None:
            with pytest.raises(CommitRejectedError, match=lost):
                flow.run()
    flow.run(2)
    flow.run()
    assert flow.output() == output_of(ROWS)


def test_a_table_that_is_taken_back_under_a_run_ends_it(flow: Written) -> None:
    calls = []

    def take_back(_: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            table(flow).restore(3)

    flow.after = take_back
    with pytest.raises(CommitRejectedError, match="which it had"):
        flow.run()
    assert flow.output() == output_of(ROWS[:9])


def test_a_table_without_our_notes_is_not_judged(flow: Written) -> None:
    """An older version has left none; others may have taken back theirs before."""
    assert sight_of(table(flow), "another", 6) is None
    assert sight_of(table(flow), application(flow), 6) is None
    table(flow).restore(3)
    assert sight_of(table(flow), application(flow), 9) is None
    assert sight_of(table(flow), application(flow), 6) == Sight(2)
    table(flow).restore(0)
    assert sight_of(table(flow), application(flow), 6) == Sight(None)


def application(flow: Written) -> str:
    return f"riverlock/{flow.catalog.flow().id}/out"
