"""Fewer, larger state files, so that a restart reads a bounded number of them.

Universal compaction: a *span* is the set of files of the same epochs. When spans become
too many, the newest ones are merged, going back as long as the next older span is not
much larger than what is merged already. An entry is thus rewritten a logarithmic number
of times. When rows become too many for the entries that are left, or for those of the
oldest span, all are merged: updates of the same keys would otherwise be kept many times
over (bounds: docs/architecture.md, "Compaction and retention").

Tombstones and expired entries go only when the oldest span takes part: below
it there is nothing that they hide.

Runs beside the loop. Its files take effect with the next manifest; until then, and if
the process dies, they are unreferenced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.snapshot.format.state_files import (
    live,
    merge_tables,
    read_table,
    write_state_file,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from riverlock.snapshot.format.records import OperatorState, StateFile
    from riverlock.snapshot.format.store_layout import RegionPaths
    from riverlock.storage.base import Storage

__all__ = ["Compaction", "choose", "compact", "merged", "write_pieces"]

MAX_SPANS = 12
RATIO = 2.0
# All is merged at this many rows for each entry. We promise three: more rows
# come while the merge is in progress.
AMPLIFICATION = 2.0
# Below this it is not worth the trouble.
FLOOR_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """A merge to do: consecutive spans of one operator."""

    operator: str
    files: tuple[StateFile, ...]
    drops_tombstones: bool

    @property
    def epochs(self) -> tuple[int, int]:
        """The first and the last epoch whose changes the files hold."""
        return (
            min(f.first_epoch for f in self.files),
            max(f.last_epoch for f in self.files),
        )


def choose(
    operator: str,
    state: OperatorState,
    *,
    max_spans: int = MAX_SPANS,
    floor_bytes: int = FLOOR_BYTES,
) -> Compaction | None:
    """Return the merge that is due, or None."""
    spans = _spans(state.files)
    if len(spans) > 1 and _is_too_large(spans, state.entries, floor_bytes):
        return Compaction(operator=operator, files=state.files, drops_tombstones=True)
    if len(spans) <= max_spans:
        return None
    first = len(spans) - max(2, max_spans // 2)
    rows = sum(f.rows for span in spans[first:] for f in span)
    while first > 0:
        older = sum(f.rows for f in spans[first - 1])
        if older > RATIO * rows:
            break
        first -= 1
        rows += older
    files = tuple(f for span in spans[first:] for f in span)
    return Compaction(operator=operator, files=files, drops_tombstones=first == 0)


def _is_too_large(spans: list[list[StateFile]], entries: int, floor_bytes: int) -> bool:
    """Tell whether most rows are no longer needed.

    The number of entries is approximate (expired ones may count), so the oldest span,
    which had no dead ones when it was merged, is a measure too. A merge must be worth
    it: there are at least half as many newer rows.
    """
    if sum(f.bytes for span in spans for f in span) <= floor_bytes:
        return False
    rows = sum(f.rows for span in spans for f in span)
    oldest = sum(f.rows for f in spans[0])
    is_worth_it = rows > 1.5 * oldest
    return rows > AMPLIFICATION * oldest or (
        is_worth_it and rows > AMPLIFICATION * entries
    )


def _spans(files: tuple[StateFile, ...]) -> list[list[StateFile]]:
    """Group files by the epochs they cover, oldest first; overlaps stay together."""
    spans: list[list[StateFile]] = []
    end = -1
    for file in sorted(files, key=lambda f: (f.first_epoch, f.last_epoch)):
        if spans and file.first_epoch <= end:
            spans[-1].append(file)
        else:
            spans.append([file])
        end = max(end, file.last_epoch)
    return spans


def compact(  # noqa: PLR0913 - where, what, when, how split, under which name
    storage: Storage,
    paths: RegionPaths,
    plan: Compaction,
    *,
    now_us: int,
    pieces: list[tuple[int, int]],
    attempt: str,
) -> tuple[StateFile, ...]:
    """Merge the files of a plan into one file per piece of the key groups.

    With tombstones dropped, a piece gets its file even if nothing is left in it: it
    shows a working copy that lags behind that it cannot catch up step by step.

    Args:
        storage: The store.
        paths: Where the region's files are.
        plan: What to merge.
        now_us: Processing time of the newest epoch; what expired by then may be
            dropped.
        pieces: Ranges of key groups that cover all of them.
        attempt: Makes the names of the files unique.

    Raises:
        SnapshotCorruptedError: A file is missing or altered.
    """
    table = merged(storage, plan, now_us=now_us)
    path = paths.state_file(plan.operator, plan.epochs[1], attempt)
    return write_pieces(storage, plan, table, pieces, path.removesuffix(".parquet"))


def merged(storage: Storage, plan: Compaction, *, now_us: int) -> pa.Table:
    """Return the winning entries of all files of a plan.

    Raises:
        SnapshotCorruptedError: A file is missing or altered.
    """
    ordered = sorted(plan.files, key=lambda f: (f.first_epoch, f.last_epoch))
    table = merge_tables([read_table(storage, f) for f in ordered])
    return live(table, now_us) if plan.drops_tombstones else table


def write_pieces(
    storage: Storage,
    plan: Compaction,
    table: pa.Table,
    pieces: Sequence[tuple[int, int]],
    stem: str,
) -> tuple[StateFile, ...]:
    """Write what replaces the files of a plan, one file per piece.

    Args:
        storage: The store.
        plan: What is replaced.
        table: Sorted entries.
        pieces: Ranges of key groups that cover all of them.
        stem: The beginning of the files' paths; must never be used again.
    """
    made = []
    for number, (first, end) in enumerate(pieces):
        part = _piece(table, first, end, with_shared=number == 0)
        if part.num_rows or plan.drops_tombstones:
            made.append(
                write_state_file(
                    storage,
                    f"{stem}-{number:04d}.parquet",
                    part,
                    epochs=plan.epochs,
                    groups=(first, end),
                    shared=number == 0 and any(f.shared for f in plan.files),
                )
            )
    return tuple(made)


def _piece(table: pa.Table, first: int, end: int, *, with_shared: bool) -> pa.Table:
    import pyarrow.compute as pc

    group = table["key_group"]
    inside = pc.and_(pc.greater_equal(group, first), pc.less(group, end))
    return table.filter(pc.fill_null(inside, with_shared))
