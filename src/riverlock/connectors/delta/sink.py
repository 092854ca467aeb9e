"""Delta Lake tables: one commit of the table per epoch, without a jar.

Tasks write data files into the table's directory, where no reader looks until a commit
names them. The commit of the table names the epoch's files and, in the same step, the
epoch itself as the version of this sink's application transaction. Delta refuses a
second commit that moves the same transaction, so a run that was overtaken cannot add
the files twice.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.connectors.base.committer import check_kept, lacking, of_the_origin
from riverlock.connectors.delta.delta_history import note, sight_of
from riverlock.connectors.files.listing import is_inside
from riverlock.connectors.files.partitions import check_columns, partitions
from riverlock.connectors.files.reachable import reach
from riverlock.connectors.files.sink import place
from riverlock.core.errors import (
    CommitRejectedError,
    FencedError,
    ForeignEpochError,
    InvalidConfigError,
    InvalidFlowError,
    SinkError,
)
from riverlock.core.extras import load_extra
from riverlock.core.keywords import told_keywords
from riverlock.snapshot.format.state_files import encode_table
from riverlock.snapshot.past import Commit, commit_of
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from riverlock.connectors.base.committer import Owner
    from riverlock.connectors.base.sink import SinkUse
    from riverlock.connectors.base.stager import StagePoint
    from riverlock.core.types import Schema
    from riverlock.snapshot.format.records import SinkOutput
    from riverlock.storage.base import Storage

__all__ = ["DeltaSink", "delta"]

# Their text in the log is the same for all writers of Delta.
_PARTITIONED = frozenset(
    {"string", "boolean", "byte", "short", "integer", "int", "long", "date"}
)


@dataclass(frozen=True, kw_only=True)
class DeltaSink:
    """A Delta table; see ``delta``."""

    path: str
    partition_by: tuple[str, ...] = ()
    kind: str = "delta"
    # As it was given; ``path`` is what it meant where the flow was built.
    given: str = ""

    @property
    def place(self) -> str:
        """Where the table is."""
        return self.path

    def stager(self, use: SinkUse) -> DeltaStager:
        """Return the stager, which writes data files."""
        check_columns(use, self.partition_by)
        for column in self.partition_by:
            if (kind := use.schema[column].kind) not in _PARTITIONED:
                raise InvalidFlowError(
                    f"partition_by of sink {use.uid!r}",
                    expected="columns of strings, whole numbers, dates or booleans",
                    found=f"{column} {kind}",
                )
        if len(self.partition_by) == len(use.schema.names):
            raise InvalidFlowError(
                f"partition_by of sink {use.uid!r}",
                expected="at least one column that is not in partition_by",
                found="all columns",
            )
        return DeltaStager(path=self.path, partition_by=self.partition_by)

    def committer(self, use: SinkUse, storage: Storage) -> DeltaCommitter:
        """Return the committer, which commits to the table."""
        del storage  # data files are in the table's own place
        return DeltaCommitter(sink=self, schema=use.schema, replaces=use.replaces)


@told_keywords
def delta(path: str, *, partition_by: str | Sequence[str] = ()) -> DeltaSink:
    """Write to a Delta Lake table exactly once: each epoch is one commit of the table.

    The table is created with the stream's columns if it does not exist. Mode
    ``complete`` replaces its rows. Data files that a crash left without a commit are
    invisible; Delta's own ``VACUUM`` removes them.

    Args:
        path: A directory or an object store's URL.
        partition_by: Columns that the table is partitioned by.
    """
    by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    return DeltaSink(path=place(path), partition_by=by, given=path)


@dataclass(frozen=True, kw_only=True)
class DeltaStager:
    """Writes data files where a commit can name them."""

    path: str
    partition_by: tuple[str, ...]

    def stage(self, table: pa.Table, at: StagePoint) -> list[Any]:
        """Write one Parquet file per partition."""
        target = open_storage(self.path)
        tokens = []
        for number, (values, part) in enumerate(partitions(table, self.partition_by)):
            # Without folders: readers take partitions from the log, and values can be
            # anything there.
            name = f"part-{at.epoch:012d}-{at.attempt}-{number:05d}.parquet"
            data = encode_table(part)
            target.put(name, data)
            tokens.append(
                {
                    "root": self.path,
                    "file": name,
                    "time": int(time.time() * 1_000),
                    "rows": part.num_rows,
                    "bytes": len(data),
                    "partition": dict(values),
                }
            )
        return tokens


@dataclass
class DeltaCommitter:
    """Names an epoch's files in one commit of the table."""

    sink: DeltaSink
    schema: Schema | None
    replaces: bool
    guarantee: str = (
        "exactly once: an epoch is one commit of the table, which also records the"
        " epoch"
    )
    _owner: Owner | None = None
    _name: str = ""
    _application: str = ""
    # The epoch that the table had when this run looked last.
    _seen: _Mark | None = None
    # The version of the table in which nothing of ours was missing.
    _version: int = -1

    def probe(self) -> None:
        """Check whether the table's place answers; change nothing.

        Raises:
            InvalidConfigError: deltalake is missing.
            SinkUnavailableError: It does not.
        """
        _deltalake()
        reach(self.sink.path)

    def to_make(self) -> tuple[str, ...]:
        """Return the table, if it does not exist."""
        is_there = _deltalake().DeltaTable.is_deltatable(self.sink.path)
        return () if is_there else (f"table {self.sink.path}",)

    def open(self, owner: Owner) -> None:
        """Make the table if there is none; check its columns if there is one.

        Raises:
            InvalidConfigError: Columns or partitions differ, deltalake is missing, or
                this is a fork and the table is that of its origin.
            ForeignEpochError: It has an epoch that this store has not decided.
            CommitRejectedError: It lacks epochs that it had.
            SinkError: The table cannot be reached.
        """
        self._call(owner.flow, owner.sink)
        lake = _deltalake()
        assert self.schema is not None
        ours = lake.Schema.from_arrow(self.schema.to_arrow())
        try:
            if not lake.DeltaTable.is_deltatable(self.sink.path):
                self._check_kept(owner, None)
                if "://" not in self.sink.path:
                    Path(self.sink.path).mkdir(parents=True, exist_ok=True)
                lake.DeltaTable.create(
                    self.sink.path,
                    schema=ours,
                    mode="ignore",
                    partition_by=list(self.sink.partition_by),
                )
            table = lake.DeltaTable(self.sink.path)
        except (lake.exceptions.DeltaError, OSError) as error:
            raise SinkError(self.sink.path, epoch=None, what=str(error)) from error
        self._check(table, ours)
        self._owner = owner
        self._seen = _mark_in(table, self._application)
        if self._seen is None and owner.origin is not None:
            theirs = _application(owner.origin, owner.sink)
            if table.transaction_version(theirs) is not None:
                raise of_the_origin(owner.sink, f"Delta table {self.sink.path}")
        self._check_past(owner)
        self._check_kept(owner, self._seen)
        self._check_in_sight(table)

    def _check_in_sight(self, table: Any) -> None:
        """Refuse a table in which RESTORE has undone epochs since we looked."""
        owner, seen = self._owner, self._seen
        # Of mode complete, the next epoch has all rows.
        if owner is None or seen is None or self.replaces:
            return
        if table.version() != self._version:
            given = self._given(owner, seen)
            sight = sight_of(table, self._application, seen.epoch)
            has = None if sight is None else sight.epoch
            if sight is not None and given is not None and (has is None or has < given):
                raise lacking(owner, has, given, f"Delta table {self.sink.path}")
        self._version = table.version()

    def _given(self, owner: Owner, seen: _Mark) -> int | None:
        """Return the newest epoch that should be in sight."""
        past, newest = owner.past, owner.past.newest
        is_of_this_run = newest is not None and seen.epoch > newest
        if is_of_this_run or past.leads_here(seen.epoch):
            return seen.epoch
        # The store has gone back since, and writes anew what follows.
        return past.expected(owner.sink, self.sink.path)

    def _check_kept(self, owner: Owner, seen: _Mark | None) -> None:
        commit = None if seen is None else Commit(epoch=seen.epoch)
        name = f"Delta table {self.sink.path}"
        check_kept(owner, commit, place=self.sink.path, name=name)

    def _check_past(self, owner: Owner) -> None:
        """Refuse a table with an epoch that the store of this run has not decided."""
        found, newest = self._seen, owner.past.newest
        if found is None or newest is None:
            return
        known = owner.past.commit(found.epoch, owner.sink)
        # Of an epoch that is not retained, only the number is left.
        is_ours = known is None or found.is_of(known)
        if found.epoch > newest or not is_ours:
            raise self._foreign(found)

    def _check(self, table: Any, ours: Any) -> None:
        theirs = {f.name: f.type for f in table.schema().fields}
        wanted = {f.name: f.type for f in ours.fields}
        by = tuple(table.metadata().partition_columns)
        if theirs == wanted and by == self.sink.partition_by:
            return
        raise InvalidConfigError(
            f"Delta table {self.sink.path}",
            expected=_columns(wanted, self.sink.partition_by),
            found=_columns(theirs, by),
            hint="select the table's columns before write, or choose another table",
        )

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Commit the epoch's files, unless the table says that it has them."""
        if not output.tokens and not output.replaces:
            return
        lake = _deltalake()
        path, wanted = self._home(epoch, output.tokens), commit_of(epoch, output)
        try:
            table = lake.DeltaTable(path)
            if not self._has(table, wanted):
                if path == self.sink.path:
                    self._check_seen(_mark_in(table, self._application))
                    self._check_in_sight(table)
                self._check_files(path, epoch, output.tokens)
                self._add(table, wanted, output.tokens)
        except lake.exceptions.CommitFailedError as error:
            # Another run may have committed this epoch since the table was read.
            if not self._has(lake.DeltaTable(path), wanted):
                raise SinkError(path, epoch=epoch, what=str(error)) from error
        except lake.exceptions.SchemaMismatchError as error:
            what = f"its columns were changed meanwhile: {error}"
            raise CommitRejectedError(path, epoch=epoch, what=what) from error
        except (lake.exceptions.DeltaError, OSError) as error:
            raise SinkError(path, epoch=epoch, what=str(error)) from error
        if path == self.sink.path:
            self._seen = _Mark.of(wanted)
            if table.version() == self._version + 1:  # nobody else has written
                self._version += 1

    def complete(self, flow: str, sink: str, epoch: int, output: SinkOutput) -> None:
        """Commit what was decided for a sink that the flow no longer has.

        Raises:
            SinkError: It did not work.
        """
        self._call(flow, sink)
        self.commit(epoch, output)

    def _call(self, flow: str, sink: str) -> None:
        self._name, self._application = sink, _application(flow, sink)

    def _home(self, epoch: int, tokens: tuple[Any, ...]) -> str:
        """Return the table that holds the files of an epoch.

        If the sink has another one since, the epoch is completed in the old one, unless
        that was moved or copied here.
        """
        if not tokens:
            return self.sink.path
        here, meant = self.sink.path, tokens[0]["root"]
        if here == meant or open_storage(here).exists(tokens[0]["file"]):
            return here
        if open_storage(meant).exists(tokens[0]["file"]):
            return str(meant)
        what = f"its files are neither here nor in {meant}; put that table back"
        raise CommitRejectedError(here, epoch=epoch, what=what)

    def _check_files(self, path: str, epoch: int, tokens: tuple[Any, ...]) -> None:
        """Refuse to name files of an earlier run that are gone by now."""
        newest = None if self._owner is None else self._owner.past.newest
        if newest is not None and epoch > newest:
            return  # ours, just written
        storage = open_storage(path)
        gone = [t["file"] for t in tokens if not storage.exists(t["file"])]
        if gone:
            what = (
                f"its file {gone[0]} is gone: was {path} put back from a backup?"
                " Nothing was written; bring the newer table back, or, if the rows of"
                f" epoch {epoch} are to be abandoned, say"
                f" flow.abandoned({self._name!r}, epoch={epoch})"
            )
            raise CommitRejectedError(self._name, epoch=epoch, what=what)

    def _has(self, table: Any, wanted: Commit) -> bool:
        """Tell whether the table has this very epoch, and not another with its number.

        Raises:
            ForeignEpochError: It has another.
            FencedError: And it was written since we looked.
        """
        found = _mark_in(table, self._application)
        if found is None or found.epoch < wanted.epoch:
            return False
        if not found.is_of(wanted):
            self._check_seen(found)
            raise self._foreign(found)
        return True

    def _foreign(self, found: _Mark) -> ForeignEpochError:
        newest = None if self._owner is None else self._owner.past.newest
        place = f"Delta table {self.sink.path}"
        return ForeignEpochError(
            self._name, place=place, epoch=found.epoch, newest=newest
        )

    def _check_seen(self, found: _Mark | None) -> None:
        """Stop if another run has written since we looked; our own waits for us."""
        if self._owner is not None and found != self._seen:
            raise FencedError(
                store=f"sink {self._owner.sink!r}",
                run=self._owner.run,
                owner="a newer run, or one of another copy of the store,",
            )

    def _add(self, table: Any, wanted: Commit, tokens: tuple[Any, ...]) -> None:
        lake = _deltalake()
        actions = [
            lake.transaction.AddAction(
                path=token["file"],
                size=token["bytes"],
                partition_values=token["partition"],
                modification_time=token["time"],
                data_change=True,
                stats=msgspec.json.encode({"numRecords": token["rows"]}).decode(),
            )
            for token in tokens
        ]
        for token in tokens:
            if not is_inside(token["file"]):
                what = f"its manifest names {token['file']!r}, outside of the table"
                path = self.sink.path
                raise CommitRejectedError(path, epoch=wanted.epoch, what=what)
        marks = [
            lake.transaction.Transaction(name, version)
            for name, version in _Mark.of(wanted).versions(self._application).items()
        ]
        table.create_write_transaction(
            actions,
            mode="overwrite" if self.replaces else "append",
            schema=table.schema(),
            partition_by=list(self.sink.partition_by),
            commit_properties=lake.CommitProperties(
                app_transactions=marks,
                custom_metadata=note(self._application, wanted.epoch),
            ),
        )


@dataclass(frozen=True)
class _Mark:
    """What a table remembers about the newest epoch that it has.

    A Delta table keeps only numbers, one for each application: the epoch, and 63 bits
    of the hash of its identity beside the epoch it belongs to, since older versions
    write the first alone.
    """

    epoch: int
    hash: int | None  # None: not known

    @classmethod
    def of(cls, commit: Commit) -> _Mark:
        text = f"{commit.epoch} {commit.run} {commit.digest}".encode()
        hashed = hashlib.blake2b(text, digest_size=8).digest()
        return cls(commit.epoch, int.from_bytes(hashed) >> 1)

    def is_of(self, commit: Commit) -> bool:
        known = _Mark.of(commit)
        return self.epoch == known.epoch and self.hash in (None, known.hash)

    def versions(self, application: str) -> dict[str, int]:
        assert self.hash is not None
        return {
            application: self.epoch,
            f"{application}/epoch": self.epoch,
            f"{application}/identity": self.hash,
        }


def _mark_in(table: Any, application: str) -> _Mark | None:
    epoch = table.transaction_version(application)
    if epoch is None:
        return None
    is_told = table.transaction_version(f"{application}/epoch") == epoch
    identity = table.transaction_version(f"{application}/identity")
    return _Mark(epoch, identity if is_told else None)


def _application(flow: str, sink: str) -> str:
    return f"riverlock/{flow}/{sink}"


def _columns(columns: dict[str, Any], by: tuple[str, ...]) -> str:
    named = ", ".join(f"{n} {getattr(t, 'type', t)}" for n, t in columns.items())
    return f"{named}, partitioned by {', '.join(by)}" if by else named


def _deltalake() -> Any:
    return load_extra(
        "deltalake.transaction", extra="delta", needed_for="sink of kind 'delta'"
    )
