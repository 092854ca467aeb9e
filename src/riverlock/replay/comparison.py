"""Compares what an epoch did with what it does when it is run again.

State: the entries that an epoch changed, as its change files have them, hashed for each
key group. Outputs: what was staged for each sink, by the checksums of the staged files;
where those differ, or files are cut differently, the rows themselves are compared, as a
multiset.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from riverlock.connectors.files.listing import file_of
from riverlock.core.errors import RiverlockError
from riverlock.core.values.arrow_values import python_rows
from riverlock.snapshot.channel_files import as_sent
from riverlock.snapshot.format.state_files import read_file, read_table, table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from riverlock.replay.one_key import OneKey
    from riverlock.snapshot.format.records import OperatorState, SinkOutput
    from riverlock.storage.base import Storage

__all__ = [
    "Change",
    "Entries",
    "OutputComparison",
    "StateComparison",
    "changed_entries",
    "compare_output",
    "compare_state",
    "state_changes",
]

# What an epoch left of the entries that it changed, by id.
Entries: TypeAlias = dict[bytes, dict[str, Any]]
# The order of columns in a file means nothing.
_encode = msgspec.msgpack.Encoder(enc_hook=str, order="deterministic").encode
_json = msgspec.json.Encoder(enc_hook=str).encode


@dataclass(frozen=True, kw_only=True)
class StateComparison:
    """What an epoch changed in the state of an operator, then and now.

    Attributes:
        operator: Its uid.
        entries: How many entries the replay changed.
        recorded: Hash of what the epoch had changed.
        replayed: Hash of what the replay changed.
        groups: Key groups whose hashes differ; None stands for broadcast state.
    """

    operator: str
    entries: int
    recorded: str
    replayed: str
    groups: tuple[int | None, ...] = ()

    @property
    def matches(self) -> bool:
        """Whether every entry is the same."""
        return not self.groups


@dataclass(frozen=True, kw_only=True)
class OutputComparison:
    """What an epoch gave to a sink, then and now.

    Attributes:
        sink: Its uid.
        recorded_rows: How many rows there were.
        rows: How many rows there are now.
        matches: Whether they are the same; None if that cannot be told.
        how: What was compared, or why not.
        only_before: Rows that only the original has, as text.
        only_after: Rows that only the replay has.
    """

    sink: str
    recorded_rows: int
    rows: int
    matches: bool | None
    how: str
    only_before: Counter[str] = field(default_factory=Counter)
    only_after: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, kw_only=True)
class Change:
    """An entry of state that came out differently.

    Attributes:
        operator: The uid of the operator.
        key: The key columns; None for state that no key has.
        entry: What kind of entry (format §5), with its variable.
        before: What the original left; None: it is gone. Absent if it was not touched.
        after: The same of the replay.
    """

    operator: str
    key: Any
    entry: str
    before: Any = msgspec.UNSET
    after: Any = msgspec.UNSET


def changed_entries(
    storage: Storage,
    state: OperatorState | None,
    epoch: int,
    only: OneKey | None = None,
) -> Entries:
    """Return the entries that an epoch changed.

    Raises:
        SnapshotCorruptedError: A file is missing or altered.
    """
    found: Entries = {}
    for file in () if state is None else state.files:
        if (file.first_epoch, file.last_epoch) == (epoch, epoch):
            table = read_table(storage, file)
            if only is not None:
                table = only.entries(table)
            found |= {row["id"]: _plain(row) for row in python_rows(table)}
    return found


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not set: code that declares more says nothing else by it."""
    data = {n: v for n, v in (row.get("data") or {}).items() if v is not None}
    return {**row, "data": data}


def compare_state(
    operator: str, recorded: Entries, replayed: Entries
) -> StateComparison:
    """Compare by key group."""
    before, after = _by_group(recorded), _by_group(replayed)
    groups = sorted(
        (g for g in before.keys() | after.keys() if before.get(g) != after.get(g)),
        key=lambda g: (g is not None, g),
    )
    return StateComparison(
        operator=operator,
        entries=len(replayed),
        recorded=_digest(before),
        replayed=_digest(after),
        groups=tuple(groups),
    )


def _by_group(entries: Entries) -> dict[int | None, bytes]:
    hashes: dict[int | None, Any] = {}
    for entry_id in sorted(entries):
        row = entries[entry_id]
        group = row["key_group"]
        if group not in hashes:
            hashes[group] = blake2b(digest_size=16)
        hashes[group].update(_encode(row))
    return {group: found.digest() for group, found in hashes.items()}


def _digest(groups: Mapping[int | None, bytes]) -> str:
    order = sorted(groups, key=lambda g: (g is not None, g))
    found = blake2b(digest_size=16)
    for group in order:
        found.update(_encode((group, groups[group])))
    return found.hexdigest()


def state_changes(
    operator: str, recorded: Entries, replayed: Entries
) -> Iterable[Change]:
    """Yield the entries that came out differently, in the order of their ids."""
    for entry_id in sorted(recorded.keys() | replayed.keys()):
        before, after = recorded.get(entry_id), replayed.get(entry_id)
        if before is not None and after is not None and _same(before, after):
            continue
        row = before or after
        assert row is not None
        name = row["variable"]
        yield Change(
            operator=operator,
            key=row["key"],
            entry=row["entry"] if name is None else f"{row['entry']} {name}",
            before=msgspec.UNSET if before is None else _shown(before),
            after=msgspec.UNSET if after is None else _shown(after),
        )


def _same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    # As bytes: a NaN is the same as itself.
    return bool(_encode(before) == _encode(after))


def _shown(row: dict[str, Any]) -> Any:
    if row["deleted"]:
        return None
    if row["entry"] == "timer":
        return row["timer"]
    data = row["data"]
    if row["variable"] is None:
        return dict(sorted(data.items()))
    return data.get(row["variable"])


def compare_output(
    sink: str,
    recorded: SinkOutput | None,
    replayed: SinkOutput,
    storage: Storage,
    epoch: int,
) -> OutputComparison:
    """Compare what was staged for a sink; ``storage`` holds what is in no directory."""
    tokens = () if recorded is None else recorded.tokens
    rows = 0 if recorded is None else recorded.rows
    # Rows without tokens left with their tasks (`at least once`).
    before = _checksums(tokens) if tokens or not rows else None
    after = _checksums(replayed.tokens)
    if before is not None and before == after:
        return _output(sink, rows, replayed.rows, matches=True, how="checksums")
    if before is None or after is None:
        if rows != replayed.rows:
            return _output(sink, rows, replayed.rows, matches=False, how="row counts")
        how = "not compared: the sink does not stage files; the row counts are equal"
        return _output(sink, rows, replayed.rows, matches=None, how=how)
    try:
        old, new = (_rows(t, storage, epoch) for t in (tokens, replayed.tokens))
    except RiverlockError as error:
        same = None if rows == replayed.rows else False
        how = f"not compared, the original rows cannot be read: {error}"
        return _output(sink, rows, replayed.rows, matches=same, how=how)
    return OutputComparison(
        sink=sink,
        recorded_rows=rows,
        rows=replayed.rows,
        matches=old == new,
        how="rows",
        only_before=old - new,
        only_after=new - old,
    )


def _output(
    sink: str, before: int, after: int, *, matches: bool | None, how: str
) -> OutputComparison:
    return OutputComparison(
        sink=sink, recorded_rows=before, rows=after, matches=matches, how=how
    )


def _checksums(tokens: Iterable[Any]) -> Counter[str] | None:
    """Return the checksums of staged files; None if tokens are of another kind."""
    found: Counter[str] = Counter()
    for token in tokens:
        if not isinstance(token, dict) or "checksum" not in token:
            return None
        folder = str(token.get("name", "")).rpartition("/")[0]
        found[f"{folder}/{token['checksum']}"] += 1
    return found


def _rows(tokens: Iterable[Any], storage: Storage, epoch: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for token in tokens:
        is_file = "path" not in token
        place, path = file_of(token, epoch) if is_file else (storage, token["path"])
        data = read_file(place, path, size=token["bytes"], expected=token["checksum"])
        name = str(token["name"] if is_file else path)
        folder = name.rpartition("/")[0] if is_file else ""
        prefix = f"{folder}: " if folder else ""
        found.update(prefix + row for row in _decoded(name, data))
    return found


def _decoded(name: str, data: bytes) -> list[str]:
    """Return the rows of a staged file as text."""
    if name.endswith(".json"):
        return data.decode().splitlines()
    if name.endswith(".csv"):
        return data.decode().splitlines()[1:]
    return [_json(row).decode() for row in python_rows(as_sent(table_of(data)))]
