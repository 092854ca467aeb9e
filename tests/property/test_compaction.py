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

from riverlock.snapshot.compaction import choose, compact
from riverlock.snapshot.files import live, merge_tables, read_table
from riverlock.snapshot.records import OperatorState, StateFile
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
