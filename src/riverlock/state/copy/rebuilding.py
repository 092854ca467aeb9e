"""From state files back to store bytes: how a working copy is rebuilt or caught up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.state.changelog import KINDS
from riverlock.state.codec import Codec, codec_of, encode
from riverlock.state.keys import time_bytes, timer_slot
from riverlock.state.spec import Map, StateSpec
from riverlock.state.store import Changes

if TYPE_CHECKING:
    import pyarrow as pa

    from riverlock.state.layout import StateLayout

__all__ = ["changes_of"]


def changes_of(table: pa.Table, layout: StateLayout) -> Changes:
    """Return what a state file (a part of its rows) does to a store.

    Variables that the file has and the code no longer declares are left out; those it
    lacks stay unset.
    """
    import pyarrow.compute as pc

    changes = Changes.empty()
    if table.num_rows == 0:
        return changes
    _deletes(table.filter(table["deleted"]), changes)
    live = table.filter(pc.invert(table["deleted"]))
    rows = _of_kind(live, "values")
    for scope in layout.rows:
        _rows(_of_scope(rows, scope), layout, scope, changes)
    _timers(_of_kind(live, "timer"), layout, changes)
    for spec in layout.handled:
        mine = live.filter(pc.equal(live["variable"], spec.name))
        _entries(mine, layout, spec, changes)
    return changes


def _of_kind(table: pa.Table, entry: str) -> pa.Table:
    """Return the entries of a kind.

    By a mask: an expression makes Arrow start a plan with threads, for a millisecond
    each, and a recovery does so for every file.
    """
    import pyarrow.compute as pc

    return table.filter(pc.equal(table["entry"], entry))


def _of_scope(rows: pa.Table, scope: str) -> pa.Table:
    import pyarrow.compute as pc

    no_key = pc.is_null(rows["key"])
    no_group = pc.is_null(rows["key_group"])
    match scope:
        case "key":
            return rows.filter(pc.invert(no_key))
        case "group":
            return rows.filter(pc.and_(no_key, pc.invert(no_group)))
        case _:
            return rows.filter(no_group)


def _deletes(table: pa.Table, changes: Changes) -> None:
    changes.deletes += table["id"].to_pylist()
    timers = _of_kind(table, "timer")
    for entry_id, slot in zip(timers["id"].to_pylist(), _slots(timers), strict=True):
        changes.timers.append((slot[1:], entry_id[: -len(slot)], None))


def _slots(timers: pa.Table) -> list[bytes]:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = timers["timer"].combine_chunks()
    kinds = pc.struct_field(column, "kind").to_pylist()
    times = pc.struct_field(column, "at").cast(pa.int64()).to_pylist()
    return [timer_slot(KINDS.index(k), t) for k, t in zip(kinds, times, strict=True)]


def _timers(table: pa.Table, layout: StateLayout, changes: Changes) -> None:
    columns = [
        codec.from_arrow([k[f.name] for k in table["key"].to_pylist()])
        for f, codec in zip(layout.keys.fields, layout.key_codecs, strict=True)
    ]
    keys = map(encode, zip(*columns, strict=True))
    for entry_id, slot, key in zip(
        table["id"].to_pylist(), _slots(table), keys, strict=True
    ):
        changes.puts[entry_id] = key
        changes.timers.append((slot[1:], entry_id[: -len(slot)], key))


def _rows(table: pa.Table, layout: StateLayout, scope: str, changes: Changes) -> None:
    row = layout.rows[scope]
    if table.num_rows == 0 or not row.names:
        return
    columns = [
        codec.from_arrow(_data(table, name))
        for name, codec in zip(row.names, row.codecs, strict=True)
    ]
    payloads = map(encode, zip(*columns, strict=True))
    changes.puts.update(zip(table["id"].to_pylist(), payloads, strict=True))


def _data(table: pa.Table, name: str) -> list[Any]:
    import pyarrow.compute as pc

    data = table["data"].combine_chunks()
    if data.type.get_field_index(name) < 0:
        return [None] * table.num_rows
    found: list[Any] = pc.struct_field(data, name).to_pylist()
    return found


def _entries(
    table: pa.Table, layout: StateLayout, spec: StateSpec, changes: Changes
) -> None:
    import pyarrow as pa

    if table.num_rows == 0:
        return
    codec = codec_of(spec.type)
    map_key = layout.map_key(spec) if isinstance(spec, Map) else None
    ids = table["id"].to_pylist()
    expiries = table["expires_at"].cast(pa.int64()).to_pylist()
    for entry_id, data, expires_us in zip(
        ids, _data(table, spec.name), expiries, strict=True
    ):
        payload = _payload(spec, codec, map_key, data)
        if expires_us is not None:
            payload = time_bytes(expires_us) + payload
            changes.expiries.append(payload[:8] + entry_id)
        changes.puts[entry_id] = payload


def _payload(spec: StateSpec, codec: Codec, map_key: Codec | None, data: Any) -> bytes:
    if spec.kind == "list":
        data = data["value"]
    elif map_key is not None:
        value = data["value"]
        value = None if value is None else codec.normalise(value)
        return encode((map_key.normalise(data["key"]), value))
    return encode(None if data is None else codec.normalise(data))
