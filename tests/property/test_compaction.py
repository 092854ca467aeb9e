from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.snapshot.builders import (
    GROUPS,
    KEYS,
    PATHS,
    VARIABLES,
    as_dict,
    table,
    write,
)

from riverlock.snapshot.format.records import OperatorState, StateFile
from riverlock.snapshot.format.state_files import live, merge_tables, read_table
from riverlock.snapshot.retention.compaction import choose, compact
from riverlock.storage import LocalStorage

ENTRIES = st.dictionaries(
    st.sampled_from([*"abcdefgh", "é", "*x", "*y"]),
    st.none() | st.integers(0, 99),
    max_size=6,
)


@given(st.lists(ENTRIES, min_size=1, max_size=6))
def test_merge_is_a_fold_of_dictionaries(
    changes: list[dict[str, int | None]],
) -> None:
    folded: dict[str, int | None] = {}
    for change in changes:
        folded |= change

    merged = merge_tables([table(c) for c in changes])

    assert as_dict(merged) == folded
    assert merged["id"].to_pylist() == sorted(merged["id"].to_pylist())
    kept = {k: v for k, v in folded.items() if v is not None}
    assert as_dict(live(merged, 0)) == kept


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefghij"), st.integers(0, 9), st.booleans()),
        min_size=1,
        max_size=30,
    ),
    st.booleans(),
)
@settings(max_examples=15, deadline=None)
def test_rows_and_files_are_bounded_also_if_merges_are_late(
    steps: list[tuple[str, int, bool]], is_late: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = LocalStorage(Path(directory))
        files: tuple[StateFile, ...] = ()
        state: dict[str, int | None] = {}
        waiting: tuple[tuple[StateFile, ...], tuple[StateFile, ...]] | None = None
        for epoch, (first, count, is_delete) in enumerate(steps, start=1):
            keys = [chr(ord(first) + n) for n in range(count + 1)]
            change: dict[str, int | None] = dict.fromkeys(keys, epoch)
            if is_delete:
                there = [k for k in keys if k in state]
                change = dict.fromkeys(there or [first], None)
            state = {k: v for k, v in (state | change).items() if v is not None}
            if waiting is not None:
                files = (*waiting[1], *(f for f in files if f not in waiting[0]))
            files = (*files, write(store, epoch, change))
            operator = OperatorState(
                keys=KEYS, variables=VARIABLES, files=files, entries=len(state)
            )
            plan = choose("op", operator, floor_bytes=0)
            waiting = None
            if plan is not None:
                pieces, attempt = [(0, GROUPS)], f"c{epoch}"
                made = compact(
                    store, PATHS, plan, now_us=0, pieces=pieces, attempt=attempt
                )
                waiting = (plan.files, made)
                if not is_late:
                    files = (*made, *(f for f in files if f not in plan.files))
                    waiting = None
            # A late merge adds what came meanwhile: here one epoch, ten rows at most.
            more = 2 * 11 if is_late else 0
            rows = sum(f.rows for f in files)
            oldest = files[0].rows if len(files) == 1 else 0
            assert rows <= max(3 * len(state) + more, oldest)
            assert len({(f.first_epoch, f.last_epoch) for f in files}) <= 13


@given(st.lists(ENTRIES, max_size=12), st.integers(1, 4), st.integers(1, GROUPS))
@settings(max_examples=15)
def test_compaction_changes_files_not_content(
    changes: list[dict[str, int | None]], max_spans: int, parts: int
) -> None:
    pieces = [(i * GROUPS // parts, (i + 1) * GROUPS // parts) for i in range(parts)]
    with tempfile.TemporaryDirectory() as directory:
        store = LocalStorage(Path(directory))
        files: tuple[StateFile, ...] = ()
        folded: dict[str, int | None] = {}
        for epoch, change in enumerate(changes, start=1):
            folded |= change
            if change:
                files = (*files, write(store, epoch, change))
            state = OperatorState(keys=KEYS, variables=VARIABLES, files=files)
            plan = choose("op", state, max_spans=max_spans)
            if plan is not None:
                made = compact(
                    store, PATHS, plan, now_us=0, pieces=pieces, attempt=f"c{epoch}"
                )
                rest = (f for f in files if f not in plan.files)
                files = tuple(sorted((*made, *rest), key=lambda f: f.first_epoch))
            spans = {(f.first_epoch, f.last_epoch) for f in files}
            assert len(spans) <= max(max_spans, 2)
        if files:
            merged = live(merge_tables([read_table(store, f) for f in files]), 0)
            kept = {k: v for k, v in folded.items() if v is not None}
            assert as_dict(merged) == kept
