from __future__ import annotations

from tests.unit.snapshot.builders import GROUPS, KEYS, PATHS, VARIABLES, as_dict, write

from riverlock.snapshot.format.records import OperatorState, StateFile
from riverlock.snapshot.format.state_files import live, merge_tables, read_table
from riverlock.snapshot.retention.compaction import MAX_SPANS, choose, compact
from riverlock.storage import LocalStorage


def state_of(files: tuple[StateFile, ...]) -> OperatorState:
    return OperatorState(keys=KEYS, variables=VARIABLES, files=files)


def content(store: LocalStorage, files: tuple[StateFile, ...]) -> dict[str, int | None]:
    return as_dict(live(merge_tables([read_table(store, f) for f in files]), 0))


def run(
    store: LocalStorage, files: tuple[StateFile, ...], number: int, **options: int
) -> tuple[StateFile, ...]:
    plan = choose("op", state_of(files), **options)
    if plan is None:
        return files
    made = compact(
        store,
        PATHS,
        plan,
        now_us=0,
        pieces=[(0, GROUPS // 2), (GROUPS // 2, GROUPS)],
        attempt=f"c{number}",
    )
    rest = tuple(f for f in files if f not in plan.files)
    return tuple(sorted((*made, *rest), key=lambda f: f.first_epoch))


def test_few_files_are_left_alone(store: LocalStorage) -> None:
    files = tuple(write(store, e, {"a": e}) for e in range(1, MAX_SPANS + 1))

    assert choose("op", state_of(files)) is None


def test_content_stays_and_files_stay_few(store: LocalStorage) -> None:
    files: tuple[StateFile, ...] = ()
    model: dict[str, int] = {}
    most = 0
    for epoch in range(1, 60):
        changed = {f"k{(epoch * 7 + i) % 40}": epoch for i in range(3)}
        gone = f"k{epoch % 40}"
        model |= changed
        model.pop(gone, None)
        files = (*files, write(store, epoch, {**changed, gone: None}))
        files = run(store, files, epoch, max_spans=6)
        most = max(most, len(files))

        assert content(store, files) == model

    assert most <= 2 * 6 + 2
    assert all(f.first_epoch <= f.last_epoch for f in files)


def test_large_old_span_is_not_rewritten_for_small_new_ones(
    store: LocalStorage,
) -> None:
    base = write(store, 1, {f"k{i}": i for i in range(1000)})
    files = (base, *(write(store, e, {"a": e}) for e in range(2, 20)))

    plan = choose("op", state_of(files))

    assert plan is not None
    assert base not in plan.files
    assert not plan.drops_tombstones


def test_tombstones_stay_while_something_lies_below(store: LocalStorage) -> None:
    base = write(store, 1, {f"k{i}": i for i in range(1000)})
    files = (base, *(write(store, e, {f"k{e}": None}) for e in range(2, 20)))

    after = run(store, files, 1)

    assert base in after
    assert sum(f.deletes for f in after) == 18
    assert content(store, after) == {f"k{i}": i for i in range(1000) if not 2 <= i < 20}


def test_tombstones_and_expired_entries_go_at_the_bottom(store: LocalStorage) -> None:
    files = (
        write(store, 1, {"a": 1, "b": 2, "old": 3}, expires_us=None),
        write(store, 2, {"b": None}),
        write(store, 3, {"old": 3}, expires_us=-5),
    )

    after = run(store, files, 1, max_spans=2)

    tables = [read_table(store, f) for f in after]
    assert as_dict(merge_tables(tables)) == {"a": 1}
    assert sum(f.deletes for f in after) == 0


def test_emptied_pieces_leave_a_file_behind(store: LocalStorage) -> None:
    files = (
        write(store, 1, {"a": 1, "*x": 1}),
        write(store, 2, {"a": None, "*x": None}),
        write(store, 3, {"a": None}),
    )

    after = run(store, files, 1, max_spans=2)

    assert [(f.rows, f.first_epoch, f.last_epoch) for f in after] == [(0, 1, 3)] * 2
    assert [f.shared for f in after] == [True, False]


def test_files_of_one_epoch_are_one_span(store: LocalStorage) -> None:
    files = []
    for epoch in range(1, MAX_SPANS + 1):
        files.append(write(store, epoch, {"a": 1}, groups=(0, 4)))
        files.append(write(store, epoch, {"b": 1}, groups=(4, 8)))

    assert choose("op", state_of(tuple(files))) is None


def test_parts_are_read_by_key_group(store: LocalStorage) -> None:
    file = write(store, 1, {"a": 1, "b": 2, "c": 3, "*x": 9})
    wanted = (ord("b") % GROUPS, ord("b") % GROUPS + 1)

    assert as_dict(read_table(store, file, wanted)) == {"b": 2, "*x": 9}
    assert as_dict(read_table(store, file, (0, GROUPS))) == {
        "a": 1,
        "b": 2,
        "c": 3,
        "*x": 9,
    }
