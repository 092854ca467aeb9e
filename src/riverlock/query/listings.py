"""What a store has, as rows: its epochs, and the timers of all operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.values.arrow_values import python_values
from riverlock.query.rows import Rows, TableRows
from riverlock.query.views import TIMERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from riverlock.query.snapshot import Snapshot
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["AllTimers", "epochs"]


def epochs(catalog: Catalog) -> TableRows:
    """Return the retained epochs, a row for each, oldest first, region by region."""
    import pyarrow as pa

    instant = pa.timestamp("us", tz="UTC")
    schema = pa.schema(
        [
            ("region", pa.string()),
            ("epoch", pa.int64()),
            ("names", pa.list_(pa.string())),
            ("started", instant),
            ("decided", instant),
            ("now", instant),
            ("run", pa.int64()),
            ("parallelism", pa.int64()),
            ("code", pa.string()),
            ("input_rows", pa.int64()),
            ("entries", pa.int64()),
            ("state_files", pa.int64()),
            ("state_bytes", pa.int64()),
        ]
    )
    named = catalog.snapshots()
    rows = [
        _epoch(part.manifest(n), [s.name for s in named if s.regions.get(region) == n])
        for region in catalog.regions()
        for part in (catalog.of(region),)
        for n in part.epochs()
    ]
    return TableRows(pa.Table.from_pylist(rows, schema=schema))


def _epoch(manifest: Manifest, names: list[str]) -> dict[str, Any]:
    states = manifest.operators.values()
    files = [f for state in states for f in state.files]
    known = [i.rows for i in manifest.inputs.values() if i.rows is not None]
    return {
        "region": manifest.region,
        "epoch": manifest.epoch,
        "names": names,
        "started": manifest.started_us,
        "decided": manifest.decided_us,
        "now": manifest.now_us,
        "run": manifest.run,
        "parallelism": manifest.parallelism,
        "code": manifest.code,
        "input_rows": sum(known) if known else None,
        "entries": sum(state.entries for state in states),
        "state_files": len(files),
        "state_bytes": sum(f.bytes for f in files),
    }


class AllTimers(Rows):
    """The pending timers of all operators; keys, whose types differ, as JSON."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Read nothing yet."""
        self._snapshot = snapshot

    @property
    def schema(self) -> pa.Schema:
        """Operator, key, kind, instant."""
        import pyarrow as pa

        return pa.schema(
            [
                ("operator", pa.string()),
                ("key", pa.string()),
                ("kind", pa.string()),
                ("at", pa.timestamp("us", tz="UTC")),
            ]
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the timers, operator by operator."""
        import pyarrow as pa

        for uid in self._snapshot.operators:
            for batch in self._snapshot.state(uid, TIMERS).batches():
                *keys, kind, at = batch.columns
                values = zip(*map(python_values, keys), strict=True)
                texts = [_json(v) for v in values]
                columns = [pa.array([uid] * len(texts)), pa.array(texts), kind, at]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _json(key: tuple[Any, ...]) -> str:
    return msgspec.json.encode(list(key), enc_hook=str).decode()
