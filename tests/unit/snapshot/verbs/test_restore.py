from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.snapshot.builders import manifest
from tests.unit.snapshot.killing import killed_at
from tests.unit.snapshot.small_flow import SmallFlow, output_of, state_of

import riverlock as rl
from riverlock.core.errors import FencedError, InvalidConfigError
from riverlock.driver.ownership import Heartbeat
from riverlock.snapshot.claims import claim
from riverlock.snapshot.format.records import SinkOutput
from riverlock.snapshot.retention.policy import Retention, sweep
from riverlock.snapshot.timeline import (
    deciders,
    joined,
    restored_history,
    spans,
    without,
)
from riverlock.snapshot.verbs.restore import is_open, plan_restore, restore
from riverlock.snapshot.verbs.verify import verify

ROWS = [(f"k{n * 7 % 5}", n % 11) for n in range(30)]


@pytest.fixture
def flow(tmp_path: Path) -> SmallFlow:
    """Ten epochs of three rows each; epoch 3 is ``v1``."""
    made = SmallFlow(tmp_path / "store", ROWS, tmp_path / "out")
    made.run(4)
    made.catalog.pin("v1", epoch=3, now_us=1)
    assert made.run() == 9
    return made


def at(flow: SmallFlow, epoch: object) -> str:
    return f"{flow.store}@{epoch}"


def check_whole(flow: SmallFlow) -> None:
    assert [r.problems for r in verify(flow.catalog) if not r.is_whole] == []


def test_restore_then_run_gives_what_one_run_gives(flow: SmallFlow) -> None:
    plan = rl.stores.restore(at(flow, "v1"))

    assert (plan.epoch, plan.undone) == (10, ((4, 9),))
    assert flow.state() == state_of(ROWS[:12])
    assert flow.output() == output_of(ROWS[:12])
    newest, target = flow.catalog.resolve(10), flow.catalog.resolve("v1")
    assert newest.parent == 3
    assert newest.operators == target.operators
    assert newest.watermarks == target.watermarks
    assert newest.inputs["rows"].end == target.inputs["rows"].end == 12
    # Working copies of epoch 9 are there: none of them may be gone on from.
    flow.parallelism = 2
    assert flow.run(epoch_rows=4) == 15
    assert flow.state() == state_of(ROWS)
    assert flow.output() == output_of(ROWS)
    check_whole(flow)


def test_kept_output_is_there_next_to_what_is_written_again(flow: SmallFlow) -> None:
    plan = rl.stores.restore(at(flow, 3), keep_output=True)
    flow.run()

    assert [s.is_withdrawn for s in plan.sinks] == [False]
    assert "stay" in plan.sinks[0].says
    again = output_of(ROWS) - output_of(ROWS[:12])
    assert flow.output() == output_of(ROWS) + again
    assert flow.state() == state_of(ROWS)


def test_an_undone_epoch_can_be_gone_to(flow: SmallFlow) -> None:
    rl.stores.restore(at(flow, 3))
    flow.run(2)

    plan = rl.stores.restore(at(flow, 8))

    assert plan.undone == ((10, 12),)
    assert plan.redone == ((4, 8),)
    assert flow.state() == state_of(ROWS[:27])
    assert flow.output() == output_of(ROWS[:27])
    flow.run()
    assert flow.state() == state_of(ROWS)
    assert flow.output() == output_of(ROWS)
    check_whole(flow)


def test_an_epoch_that_was_left_before_its_sinks_had_it_is_not_gone_to(
    flow: SmallFlow,
) -> None:
    flow.rows = [*ROWS, ("k1", 1), ("k2", 2)]
    assert killed_at("P8", flow.run)  # epoch 10 is decided, and not in the sink
    plan = rl.stores.restore(at(flow, 8))
    assert plan.is_open
    flow.run(1)

    with pytest.raises(InvalidConfigError, match="an epoch whose output all sinks"):
        rl.stores.restore(at(flow, 10), dry_run=True)

    assert not rl.stores.restore(at(flow, 9)).is_open
    assert flow.output() == output_of(ROWS)
    flow.run()
    assert flow.output() == output_of(flow.rows)
    assert flow.state() == state_of(flow.rows)


def test_an_epoch_that_went_back_is_not_replayed(flow: SmallFlow) -> None:
    rl.stores.restore(at(flow, 3))

    # It read nothing, and its state is not that of the epoch before it.
    with pytest.raises(InvalidConfigError, match="epoch 10, which went back to 3"):
        rl.Flow("small").replay(str(flow.store), 9, 10)


def test_the_newest_epoch_can_be_gone_to_again(flow: SmallFlow) -> None:
    rl.stores.restore(at(flow, 3))
    flow.run(1)

    rl.stores.restore(at(flow, 9))

    assert flow.output() == output_of(ROWS)
    assert flow.state() == state_of(ROWS)


@pytest.mark.parametrize("point", ["V1", "V2", "V3"])
def test_a_restore_that_is_killed_is_done_or_not(flow: SmallFlow, point: str) -> None:
    assert killed_at(point, lambda: rl.stores.restore(at(flow, 3)))
    is_decided = point == "V3"

    assert flow.state() == state_of(ROWS[:12] if is_decided else ROWS)
    check_whole(flow)
    if is_decided:
        flow.run()  # the start withdraws what the restore did not
    else:
        rl.stores.restore(at(flow, 3))
        flow.run()
    assert flow.state() == state_of(ROWS)
    assert flow.output() == output_of(ROWS)


@pytest.mark.parametrize("then", [2, 8])
def test_what_a_killed_restore_did_not_withdraw_the_next_one_does(
    flow: SmallFlow, then: int
) -> None:
    assert killed_at("V3", lambda: rl.stores.restore(at(flow, 3)))

    rl.stores.restore(at(flow, then))

    assert flow.output() == output_of(ROWS[: 3 * (then + 1)])
    flow.run()
    assert flow.state() == state_of(ROWS)
    assert flow.output() == output_of(ROWS)


def test_output_of_epochs_that_count_again_comes_back_in_any_case(
    flow: SmallFlow,
) -> None:
    assert killed_at("V3", lambda: rl.stores.restore(at(flow, 3)))
    rl.stores.restore(at(flow, 8), keep_output=True)
    assert flow.output() == output_of(ROWS[:27])

    rl.stores.restore(at(flow, 2), keep_output=True)
    assert flow.output() == output_of(ROWS[:27])


def test_a_restore_is_repeated_without_harm(flow: SmallFlow) -> None:
    rl.stores.restore(at(flow, 3))

    plan = rl.stores.restore(at(flow, "v1"))

    assert plan.is_done
    assert flow.catalog.epochs()[-1] == 10


def test_a_flow_that_runs_is_not_restored(flow: SmallFlow) -> None:
    heart = Heartbeat(flow.catalog, claim(flow.catalog, now_us=1), lambda: None)
    before = flow.catalog.epochs()
    heart.start()

    with pytest.raises(FencedError, match="run 3"):
        rl.stores.restore(at(flow, 3))

    heart.stop()
    assert flow.catalog.epochs() == before
    assert flow.output() == output_of(ROWS)


def test_what_was_decided_after_the_plan_is_not_undone(flow: SmallFlow) -> None:
    plan = plan_restore(flow.catalog, flow.catalog.manifest(3))
    rl.stores.restore(at(flow, 5))

    with pytest.raises(InvalidConfigError, match="got epoch 10"):
        restore(flow.catalog, plan, now_us=1)


def test_a_zombie_cannot_decide_after_a_restore(flow: SmallFlow) -> None:
    zombie = Heartbeat(flow.catalog, flow.catalog.run(2), lambda: None)  # type: ignore[arg-type]
    late = flow.catalog.manifest(9)

    rl.stores.restore(at(flow, 3))

    assert zombie.check() is not None
    assert not flow.catalog.decide(msgspec.structs.replace(late, epoch=10))


def test_retention_goes_on_after_a_restore(flow: SmallFlow) -> None:
    rl.stores.restore(at(flow, 3))
    for file in flow.store.rglob("*"):
        os.utime(file, (1, 1))

    sweep(flow.catalog, Retention(epochs=1, grace=timedelta(0)))

    assert flow.catalog.epochs() == [3, 10]
    assert flow.state() == flow.state("v1") == state_of(ROWS[:12])
    check_whole(flow)


def test_output_directory_of_another_flow_is_left_alone(flow: SmallFlow) -> None:
    owner = flow.out / "_riverlock/owner.json"
    owner.write_text(owner.read_text().replace('"out"', '"other"'))

    rl.stores.restore(at(flow, 3))

    assert flow.output() == output_of(ROWS)


numbers = st.lists(st.integers(0, 40), max_size=8)


@given(ours=numbers, theirs=numbers)
@settings(max_examples=60)
def test_without_is_the_difference_of_sets(ours: list[int], theirs: list[int]) -> None:
    def as_spans(numbers: list[int]) -> list[tuple[int, int]]:
        pairs = zip(numbers[::2], numbers[1::2], strict=False)
        return [(min(pair), max(pair)) for pair in pairs]

    def as_set(found: list[tuple[int, int]]) -> set[int]:
        return {n for a, b in found for n in range(a, b + 1)}

    left = without(as_spans(ours), as_spans(theirs))

    assert as_set(left) == as_set(as_spans(ours)) - as_set(as_spans(theirs))
    assert Counter(n for a, b in left for n in range(a, b + 1)) == Counter(as_set(left))


def test_history_tells_which_epochs_led_here() -> None:
    first = msgspec.structs.replace(manifest(10), history=((0, "a"), (6, "b")))
    history = restored_history(first, epoch=15, token="c")
    restored = msgspec.structs.replace(first, epoch=15, parent=10, history=history)

    assert spans(first) == [(0, 5), (6, 10)]
    assert spans(restored) == [(0, 5), (6, 10), (15, 15)]
    assert without(spans(restored), []) == [(0, 10), (15, 15)]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3)), max_size=60))
def test_a_joined_history_tells_the_same_epochs(legs: list[tuple[bool, int]]) -> None:
    """Restores are never forgotten, runs are."""
    history, epoch = [(0, "first")], 0
    for number, (is_restore, epochs) in enumerate(legs):
        epoch += epochs
        history += [(epoch, "-")] if is_restore and history[-1][1] != "-" else []
        epoch += 1
        history.append((epoch, f"t{number}"))
    whole = msgspec.structs.replace(manifest(epoch + 1), history=tuple(history))
    short = msgspec.structs.replace(whole, history=joined(whole.history))

    assert short.history[-1] == whole.history[-1]
    assert without(spans(whole), spans(short)) == []
    assert without(spans(short), spans(whole)) == []
    restores = sum(token == "-" for _, token in history)
    assert len(short.history) <= max(32, 2 * restores + 2)
    for each in range(epoch + 1):
        known = deciders(short, each)
        assert known is None or known == deciders(whole, each)


def test_an_epoch_that_only_empties_a_table_may_be_open(flow: SmallFlow) -> None:
    """Mode ``complete``: a sink that lacks it shows rows that are no more."""
    emptied = msgspec.structs.replace(
        manifest(10), outputs={"t": SinkOutput(kind="sql", replaces=True)}
    )
    assert is_open(flow.catalog, emptied)
