"""What holds for every manifest, however votes, rivals and compactions arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.coordinator.builders import make_file, make_manifest, make_plan

from riverlock.coordinator import (
    Compaction,
    OperatorVote,
    PendingEpoch,
    PlannedInputs,
    Vote,
    seal,
)
from riverlock.coordinator.sealing import compact
from riverlock.coordinator.votes import first_votes
from riverlock.snapshot.format import sealed as sealed_files
from riverlock.snapshot.format.records import (
    InputRange,
    Manifest,
    OperatorState,
    StateFile,
    TimerHeads,
    Watermark,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PARALLELISM = 4
times = st.none() | st.integers(0, 100)


@st.composite
def one_vote(draw: st.DrawFn, partition: int, attempt: str, epoch: int = 5) -> Vote:
    name = f"{epoch}-{partition}{attempt}"
    groups = (partition * 2, partition * 2 + 2)
    changed = OperatorVote(
        files=(make_file(name, epoch, groups=groups),) if draw(st.booleans()) else (),
        timers=TimerHeads(event_us=draw(times), processing_us=draw(times)),
        entries_delta=draw(st.integers(-3, 9)),
    )
    return Vote(
        partition=partition,
        attempt=attempt,
        operators={"count": changed},
        outputs={"out": tuple(f"{name}/{i}" for i in range(draw(st.integers(0, 2))))},
        output_rows={"out": draw(st.integers(0, 5))},
        max_times={"at": draw(times)},
        rows=draw(st.integers(0, 9)),
        metrics={"busy_us": draw(st.floats(0, 1e6))},
    )


@st.composite
def all_votes(draw: st.DrawFn) -> list[Vote]:
    return [draw(one_vote(p, "a")) for p in range(PARALLELISM)]


@st.composite
def parents(draw: st.DrawFn) -> Manifest:
    """A manifest of epoch 4 with some files and some event time."""
    files = [
        make_file(f"{e}-{p}", e, groups=(p * 2, p * 2 + 2))
        for e in range(5)
        for p in range(PARALLELISM)
        if draw(st.booleans())
    ]
    state = OperatorState(
        keys="k int", variables={}, files=tuple(files), entries=draw(st.integers(0, 99))
    )
    top, mark = draw(times), draw(times)
    return make_manifest(
        4,
        operators={"count": state},
        watermarks={"at": Watermark(max_time_us=top, watermark_us=mark, active_us=1)},
    )


def make_sealed(votes: tuple[Vote, ...], parent: Manifest | None) -> Manifest:
    planned = PlannedInputs(
        inputs={"in": InputRange(start=0, end=1)},
        watermarks={},
        now_us=1000,
        seed=1,
        started_us=999,
    )
    pending = PendingEpoch(
        region="main",
        epoch=5,
        turn=1,
        planned=planned,
        votes={"read": (), "count": votes},
    )
    return seal(pending, parent, make_plan(parallelism=PARALLELISM)).manifest


@given(votes=all_votes(), parent=st.none() | parents(), data=st.data())
def test_order_and_repetition_of_votes_do_not_matter(
    votes: list[Vote], parent: Manifest | None, data: st.DataObject
) -> None:
    again = data.draw(st.lists(st.sampled_from(votes), max_size=4))
    mixed = data.draw(st.permutations([*votes, *again]))

    one, other = (make_sealed(first_votes(v), parent) for v in (votes, mixed))

    assert sealed_files.seal(one) == sealed_files.seal(other)


@given(votes=all_votes(), data=st.data())
def test_one_attempt_of_each_partition_is_referred_to(
    votes: list[Vote], data: st.DataObject
) -> None:
    rivals = [data.draw(one_vote(v.partition, "b")) for v in votes]
    mixed = data.draw(st.permutations([*votes, *rivals]))

    manifest = make_sealed(first_votes(mixed), None)

    winners = [next(v for v in mixed if v.partition == p) for p in range(PARALLELISM)]
    files = [f for v in winners for f in v.operators["count"].files]
    tokens = [t for v in winners for t in v.outputs["out"]]
    assert list(manifest.operators["count"].files) == files
    assert list(manifest.outputs["out"].tokens) == tokens
    assert manifest.outputs["out"].rows == sum(v.output_rows["out"] for v in winners)


@given(votes=all_votes(), parent=parents())
def test_state_grows_by_what_was_voted(votes: list[Vote], parent: Manifest) -> None:
    manifest = make_sealed(tuple(votes), parent)

    before, after = parent.operators["count"], manifest.operators["count"]
    changes = [v.operators["count"] for v in votes]
    assert after.files[: len(before.files)] == before.files
    assert len(after.files) == len(before.files) + sum(len(c.files) for c in changes)
    assert after.entries == before.entries + sum(c.entries_delta for c in changes)
    heads = [c.timers.event_us for c in changes if c.timers.event_us is not None]
    assert after.timers.event_us == min(heads, default=None)


@given(votes=all_votes(), parent=parents())
def test_event_time_never_goes_back(votes: list[Vote], parent: Manifest) -> None:
    old, new = (
        parent.watermarks["at"],
        make_sealed(tuple(votes), parent).watermarks["at"],
    )

    seen = [t for v in votes if (t := v.max_times["at"]) is not None]
    tops = [*seen, *([] if old.max_time_us is None else [old.max_time_us])]
    marks = [] if old.watermark_us is None else [old.watermark_us]
    assert new.max_time_us == max(tops, default=None)
    assert new.watermark_us == max([*marks, *(t - 6 for t in tops)], default=None)
    assert new.active_us == (1000 if votes else 1)


@given(votes=all_votes(), parent=st.none() | parents())
def test_manifest_survives_the_disk(votes: list[Vote], parent: Manifest | None) -> None:
    manifest = make_sealed(tuple(votes), parent)

    data = sealed_files.seal(manifest)

    assert sealed_files.unseal(data, Manifest, path="m") == manifest


@given(parent=parents(), data=st.data())
def test_compaction_never_changes_what_state_reads_as(
    parent: Manifest, data: st.DataObject
) -> None:
    live = parent.operators["count"].files
    chosen = data.draw(st.sets(st.sampled_from([*live, make_file("dead", 2)])))
    old = sorted(chosen, key=lambda f: (f.first_epoch, f.first_group))
    written: dict[str, dict[int, str]] = {}

    def read(file: StateFile) -> dict[int, str]:
        plain = dict.fromkeys(range(file.first_group, file.end_group), file.path)
        return written.get(file.path, plain)

    by: tuple[StateFile, ...] = ()
    if old:
        groups = (min(f.first_group for f in old), max(f.end_group for f in old))
        last = max(f.last_epoch for f in old)
        by = (make_file("merged", old[0].first_epoch, last=last, groups=groups),)
        written["merged"] = _view(tuple(old), read)
    compaction = Compaction(
        operator="count", replaced=tuple(f.path for f in old), by=by
    )

    after = compact(live, compaction)

    assert _view(after, read) == _view(live, read)
    if "dead" in compaction.replaced:
        assert after == live


def _view(
    files: tuple[StateFile, ...], read: Callable[[StateFile], dict[int, str]]
) -> dict[int, str]:
    """What a reader sees: later files win."""
    view: dict[int, str] = {}
    for file in files:
        view |= read(file)
    return view
