"""Which stages a flow has: planned without Spark, the same for every engine."""

from __future__ import annotations

from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.driver.run_options import RunOptions
from riverlock.driver.runner import check
from riverlock.engines.local.engine import LocalEngine
from riverlock.flow.inside import program_of
from riverlock.stages.compiled import CompiledFlow, KeyedStage, WriteStage
from riverlock.testing import rows

COLUMNS = "k string, n long, at timestamp"


class Sums(rl.Process):
    output = "k string, total long"
    total = rl.Value("long", default=0)

    def on_event(self, event: Any, ctx: Any) -> Any:
        self.total += event.n
        yield ctx.key, self.total


def flow_of() -> tuple[rl.Flow, rl.Stream]:
    flow = rl.Flow("planned", key_groups=8)
    return flow, flow.read(rows(COLUMNS, []), uid="in")


def planned(flow: rl.Flow) -> CompiledFlow:
    (found,) = check(program_of(flow), LocalEngine(RunOptions()))
    return found


def ids(flow: rl.Flow) -> list[str]:
    return [stage.id for stage in planned(flow).stages]


def memory() -> Any:
    return rl.sinks.memory()


def test_a_sink_of_an_operator_is_staged_by_its_tasks() -> None:
    flow, stream = flow_of()
    stream.key_by("k").process(Sums(), uid="sums").write(memory(), uid="out")

    (stage,) = planned(flow).stages

    assert isinstance(stage, KeyedStage)
    assert list(stage.targets["main"].sinks) == ["out"]
    assert not stage.targets["main"].is_staged


def test_sinks_of_one_step_share_a_stage() -> None:
    flow, stream = flow_of()
    for uid in ("one", "two"):
        stream.write(memory(), uid=uid)

    (stage,) = planned(flow).stages

    assert isinstance(stage, WriteStage)
    assert set(stage.targets["main"].sinks) == {"one", "two"}


def test_a_function_with_several_readers_has_a_stage_of_its_own() -> None:
    flow, stream = flow_of()
    mapped = stream.map(lambda r: r, COLUMNS, uid="m")
    mapped.write(memory(), uid="out")
    mapped.key_by("k").process(Sums(), uid="sums")

    stages = planned(flow).stages

    assert [s.id for s in stages] == ["shared-rows-0", "sums"]
    assert stages[0].targets["main"].is_staged
    assert list(stages[0].targets["main"].sinks) == ["out"]


def test_what_surely_gives_the_same_rows_is_not_stored() -> None:
    flow, stream = flow_of()
    for uid in ("one", "two"):
        stream.event_time("at", uid=f"at-{uid}").key_by("k").process(Sums(), uid=uid)

    assert ids(flow) == ["one", "two"]


def test_dead_letters_of_a_function_come_with_its_rows() -> None:
    flow, stream = flow_of()
    mapped = stream.map(lambda r: r, COLUMNS, uid="m", on_error=memory())
    mapped.key_by("k").process(Sums(), uid="sums")

    write, keyed = planned(flow).stages

    assert isinstance(write, WriteStage)
    assert set(write.targets) == {"main", "dead"}
    assert write.function is not None
    assert keyed.id == "sums"


def test_an_operator_behind_another_reads_what_it_has_staged() -> None:
    flow, stream = flow_of()
    sums = stream.key_by("k").process(Sums(), uid="sums")
    again = sums.map(lambda r: (r.k, r.total, None), COLUMNS)
    again.key_by("k").process(Sums(), uid="again")

    found = planned(flow)

    assert [s.id for s in found.stages] == ["sums", "again"]
    assert list(found.staged) == [("sums", "main")]
    assert found.keyed[0].targets["main"].is_staged
    assert [s.can_read_ahead for s in found.keyed] == [True, False]


def test_watermarks_follow_the_declarations_that_reach_an_operator() -> None:
    flow, stream = flow_of()
    one, two = (stream.event_time("at", uid=uid) for uid in ("first", "second"))
    one.union(two).key_by("k").process(Sums(), uid="both")
    one.key_by("k").process(Sums(), uid="one")

    found = {stage.id: stage.event_times for stage in planned(flow).keyed}

    assert found == {"both": ("first", "second"), "one": ("first",)}


def test_the_code_of_functions_is_part_of_the_fingerprint() -> None:
    def code(function: Any) -> str:
        flow, stream = flow_of()
        stream.map(function, COLUMNS, uid="m").write(memory(), uid="out")
        return planned(flow).code

    def same(record: Any) -> Any:
        return record

    assert code(same) == code(same)
    assert code(same) != code(lambda record: (record.k, record.n + 1, record.at))


def test_a_flow_without_an_end_is_refused() -> None:
    flow, _ = flow_of()

    with pytest.raises(InvalidFlowError, match=r"write"):
        planned(flow)
