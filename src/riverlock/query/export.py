"""A snapshot as files for other tools: plain Parquet, or Delta tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from riverlock.core import faults
from riverlock.core.errors import InvalidConfigError
from riverlock.core.extras import load_extra
from riverlock.query.in_flight import in_flight_rows
from riverlock.query.relation import Relation
from riverlock.query.views import TIMERS

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from riverlock.query.rows import Rows
    from riverlock.query.snapshot import Snapshot

__all__ = ["Exported", "Format", "export"]

Format = Literal["parquet", "delta"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A table that was written.

    Attributes:
        name: The operator, ``operator.state``, or ``channels.channel``.
        path: Its directory.
        rows: How many it has.
    """

    name: str
    path: Path
    rows: int


def export(
    snapshot: Snapshot, directory: str | os.PathLike[str], kind: Format = "parquet"
) -> list[Exported]:
    """Write a snapshot as tables, a directory for each.

    An operator is a table with a row per key; its timers, and state that is not kept by
    key, are tables ``operator.name``. Rows in flight between regions are tables
    ``channels.name``. Existing directories are refused before anything
    is written.

    Raises:
        InvalidConfigError: A directory exists, or deltalake is not installed.
        SnapshotCorruptedError: A file is missing or altered.
    """
    root = Path(directory)
    write = _write_delta if kind == "delta" else _write_parquet
    if kind == "delta":
        _deltalake()
    tables = dict(_tables(snapshot))
    for name in tables:
        if (root / name).exists():
            raise InvalidConfigError(
                f"the directory {root / name}",
                expected="not to exist: nothing is overwritten",
                found="an existing one",
                hint="nothing was written; export to another directory",
            )
    return [
        Exported(name=name, path=root / name, rows=write(rows, root / name, snapshot))
        for name, rows in tables.items()
    ]


def _tables(snapshot: Snapshot) -> Iterator[tuple[str, Rows]]:
    for uid in snapshot.operators:
        whole = snapshot.state(uid)
        yield uid, whole
        yield f"{uid}.{TIMERS}", snapshot.timers(uid)
        for name, variable in whole.view.state.variables.items():
            if variable.scope != "key":
                yield f"{uid}.{name}", snapshot.state(uid, name)
    for name, rows in in_flight_rows(snapshot).items():
        yield f"channels.{name}", rows


def _write_parquet(given: Rows, path: Path, _: Snapshot) -> int:
    import pyarrow.parquet as pq

    path.mkdir(parents=True)
    # A name that readers of directories leave out until the file is whole.
    unfinished = path / "_part-00000.parquet"
    rows = 0
    with pq.ParquetWriter(unfinished, given.schema, compression="zstd") as writer:
        for batch in given.batches():
            writer.write_batch(batch)
            rows += batch.num_rows
    faults.hit("V2")
    unfinished.rename(path / "part-00000.parquet")
    return rows


def _write_delta(given: Rows, path: Path, snapshot: Snapshot) -> int:
    deltalake = _deltalake()
    what = "state" if isinstance(given, Relation) else "rows in flight"
    manifest = given.manifest if isinstance(given, Relation) else snapshot.manifest
    deltalake.write_deltalake(
        str(path),
        given.reader(),
        mode="error",
        name=path.name,
        description=f"{what} at epoch {manifest.epoch}",
    )
    added = deltalake.DeltaTable(str(path)).count()
    assert isinstance(added, int)
    return added


def _deltalake() -> Any:
    return load_extra(
        "deltalake", extra="delta", needed_for="an export as Delta tables"
    )
