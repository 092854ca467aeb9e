"""The tree of errors, cut by what a caller can do about them.

Constructors take values, never sentences; the class makes the message in the form
*could not X: expected A, found B, at place; do C*. Every error survives pickling,
since errors cross from Spark workers to the driver.

    RiverlockError
    ├─ DefinitionError          the description is impossible; nothing has run
    │   ├─ InvalidFlowError  ├─ InvalidStateSpecError  └─ InvalidConfigError
    ├─ UserCodeError            user code raised; operator, key, epoch attached
    ├─ TimeRangeError           a time that Python has no datetime for
    ├─ StateError
    │   ├─ StateTypeError  ├─ StateCorruptedError  ├─ StateSchemaError
    │   └─ UndeclaredStateError
    ├─ SourceError              an input cannot be read as recorded
    │   └─ SourceUnavailableError its system does not answer: waited out
    ├─ StorageError             object store trouble; .retryable
    │   └─ StorageNotFoundError
    ├─ SnapshotError
    │   ├─ SnapshotNotFoundError ├─ SnapshotCorruptedError └─ UnsupportedFormatError
    ├─ CoordinationError
    │   ├─ FencedError          another run owns the flow: stop
    │   ├─ ClusterLostError     Spark has nobody to run tasks: a new session is needed
    │   └─ EpochAbortedError    the epoch did not happen; .reason says why
    │       └─ InputChangedError  nor can it: it is planned anew
    ├─ SinkError
    │   ├─ SinkUnavailableError its system does not answer: waited out
    │   ├─ CommitRejectedError  known and final
    │   │   └─ ForeignEpochError  it has epochs of another copy of the store
    │   └─ CommitUnknownError   must be reconciled, never guessed
    └─ InternalError            an invariant broke: our bug
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.error_root import RiverlockError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ClusterLostError",
    "CommitRejectedError",
    "CommitUnknownError",
    "CoordinationError",
    "DefinitionError",
    "EpochAbortedError",
    "FencedError",
    "ForeignEpochError",
    "InputChangedError",
    "InternalError",
    "InvalidConfigError",
    "InvalidFlowError",
    "InvalidStateSpecError",
    "RiverlockError",
    "SinkError",
    "SinkUnavailableError",
    "SnapshotCorruptedError",
    "SnapshotError",
    "SnapshotNotFoundError",
    "SourceError",
    "SourceUnavailableError",
    "StateCorruptedError",
    "StateError",
    "StateSchemaError",
    "StateTypeError",
    "StorageError",
    "StorageNotFoundError",
    "TimeRangeError",
    "UndeclaredStateError",
    "UnsupportedFormatError",
    "UserCodeError",
]


class DefinitionError(RiverlockError, ValueError):
    """The description is impossible; raised before anything runs."""

    code = "DEFINITION"

    def __init__(self, what: str, *, expected: str, found: str, hint: str = "") -> None:
        """Say what was expected, what was found, and what to write instead."""
        super().__init__(
            f"could not use {what}: expected {expected}, found {found}",
            hint=hint,
            what=what,
            expected=expected,
            found=found,
        )


class InvalidFlowError(DefinitionError):
    """The graph of the flow is impossible."""

    code = "INVALID_FLOW"


class InvalidStateSpecError(DefinitionError):
    """A declared state cannot be stored."""

    code = "INVALID_STATE_SPEC"


class InvalidConfigError(DefinitionError):
    """A setting, file or environment does not fit."""

    code = "INVALID_CONFIG"


class UserCodeError(RiverlockError):
    """User code raised; the cause is kept as text, since it crosses processes."""

    code = "USER_CODE"
    operator: str
    key: object
    epoch: int

    def __init__(  # noqa: PLR0913 - all keywords: the parts of the message
        self,
        *,
        operator: str,
        where: str,
        cause: str,
        key: object = None,
        record: object = None,
        epoch: int | None = None,
        line: str = "",
        trace: str = "",
        instead: str = "send such records to a dead-letter sink with on_error=",
    ) -> None:
        """Name operator, key, epoch, record and the user's own line."""
        at = f"operator {operator!r}, {where}"
        if key is not None:
            at += f", key {key!r}"
        if epoch is not None:
            at += f", epoch {epoch}"
        text = f"user code raised {cause} at {at}"
        if line:
            text += f"\n  {line}"
        if record is not None:
            text += f"\n  record: {record}"
        super().__init__(
            text,
            hint="nothing of this epoch was committed; fix the code and start again,"
            f" or {instead}",
            operator=operator,
            where=where,
            cause=cause,
            key=key,
            record=record,
            epoch=epoch,
            line=line,
            trace=trace,
        )


class TimeRangeError(RiverlockError, ValueError):
    """A time or date of a row lies outside of the years that Python can name."""

    code = "TIME_RANGE"

    def __init__(  # noqa: PLR0913 - the parts of the message
        self,
        value: str,
        *,
        column: str | None = None,
        operator: str | None = None,
        key: object = None,
        record: str | None = None,
        epoch: int | None = None,
    ) -> None:
        """Name the time and, as far as known, its column, row, operator and epoch."""
        what = value if column is None else f"column {column!r} is {value}"
        text = f"{what}, which lies outside of the years 1 to 9999 of a Python datetime"
        if operator is not None:
            text = f"operator {operator!r} cannot take a row: {text}"
        if key is not None:
            text += f"; key {key!r}"
        if epoch is not None:
            text += f", epoch {epoch}"
        if record is not None:
            text += f"\n  record: {record}"
        super().__init__(
            text,
            hint="nothing of this epoch was committed; look whether milliseconds were"
            " taken for seconds; keep such rows out with where(...), make the column"
            " null with with_column(...), or send them to a dead-letter sink with"
            " on_error=",
            value=value,
            column=column,
            operator=operator,
            key=key,
            record=record,
            epoch=epoch,
        )

    def of(self, **place: Any) -> TimeRangeError:
        """Return the same error of an operator and a record."""
        found = self.__dict__
        return TimeRangeError(found["value"], column=found["column"], **place)


class StateError(RiverlockError):
    """State could not be read or written."""

    code = "STATE"


class StateTypeError(StateError, TypeError):
    """User code wrote a value that the declared type cannot hold."""

    code = "STATE_TYPE"
    # The record that left it, and the line that did or may have; once they are known.
    record: str | None = None
    line: str = ""

    def __init__(
        self, *, operator: str, variable: str, key: object, expected: str, found: object
    ) -> None:
        """Name the variable, the key, the declared type and the value."""
        super().__init__(
            f"could not store {variable!r} of operator {operator!r}, key {key!r}: "
            f"expected {expected}, found {type(found).__name__} {found!r:.200}",
            hint="change the declared type or the value that is assigned",
            operator=operator,
            variable=variable,
            key=key,
            expected=expected,
            found=repr(found)[:200],
        )

    def locate(self, *, record: str, epoch: int | None) -> None:
        """Say of which record it is."""
        self.record, self.__dict__["epoch"] = record, epoch
        self.message += f", epoch {epoch}\n  {self.line}".rstrip()
        self.message += f"\n  record: {record}"
        self.hint = (
            "nothing of this epoch was committed; change the declared type or the"
            " value, or send such records to a dead-letter sink with on_error="
        )


class UndeclaredStateError(StateError):
    """User code kept something in an attribute that is no declared state."""

    code = "STATE_UNDECLARED"
    variable: str
    meant: str | None

    def __init__(
        self,
        *,
        operator: str,
        variable: str,
        meant: str | None,
        place: str | None,
        is_constant: bool,
    ) -> None:
        """Name the attribute, the state that was meant, and where it is assigned."""
        what = "is not declared state"
        advice = (
            f"declare it, as in {variable} = rl.Value('long'); or set it in open, if"
        )
        if is_constant:
            what = "was set by open, __init__ or its class, and may not change then"
            advice = "declare what changes as state; make it in open only, if"
        did_you = "" if meant is None else f"; did you mean {meant!r}?"
        at = "" if place is None else f"\n  {place}"
        super().__init__(
            f"{variable!r} {what}{did_you}{at}\n  in operator {operator!r}: all keys of"
            " a task would share it; nothing of the epoch was stored",
            hint=f"{advice} it is the same for all keys",
            operator=operator,
            variable=variable,
            meant=meant,
            place=place,
            is_constant=is_constant,
        )


class StateCorruptedError(StateError):
    """A local working copy failed its checksum; it is rebuilt, never trusted."""

    code = "STATE_CORRUPTED"

    def __init__(self, *, path: str, why: str) -> None:
        """Name the working copy and what was wrong with it."""
        super().__init__(f"working copy {path} is damaged: {why}", path=path, why=why)


class StateSchemaError(StateError):
    """Stored state does not fit the declared state."""

    code = "STATE_SCHEMA"

    def __init__(
        self, *, operator: str, expected: str, found: str, hint: str = ""
    ) -> None:
        """Show the declared and the stored schema."""
        super().__init__(
            f"could not open the state of operator {operator!r}: "
            f"the code declares {expected}, the snapshot holds {found}",
            hint=hint
            or "restore the earlier declaration, give the variable migrate=, or the"
            " operator a new uid; `riverlock check APP.py --store STORE` shows it all",
            operator=operator,
            expected=expected,
            found=found,
        )


class SourceError(RiverlockError):
    """An input cannot be read as recorded."""

    code = "SOURCE"

    def __init__(self, source: str, *, what: str, hint: str = "") -> None:
        """Name the source and what is wrong with its data."""
        super().__init__(
            f"could not read source {source!r}: {what}",
            hint=hint,
            source=source,
            what=what,
        )


class SourceUnavailableError(SourceError):
    """The input's system does not answer; nothing is lost by waiting for it."""

    code = "SOURCE_UNAVAILABLE"
    source: str

    def __init__(self, source: str, *, what: str) -> None:
        """Name the source, its system and what was noticed."""
        super().__init__(
            source, what=what, hint="nothing is lost; a run goes on when it answers"
        )


class StorageError(RiverlockError, OSError):
    """The store's storage refused; ``retryable`` says whether waiting can help."""

    code = "STORAGE"
    exit_code = 3
    retryable: bool

    def __init__(
        self, operation: str, path: str, reason: str, *, retryable: bool
    ) -> None:
        """Name the operation, the path and the reason."""
        super().__init__(
            f"could not {operation} {path}: {reason}",
            operation=operation,
            path=path,
            reason=reason,
            retryable=retryable,
        )


class StorageNotFoundError(StorageError):
    """There is no object at that path."""

    code = "STORAGE_NOT_FOUND"

    def __init__(self, path: str) -> None:
        """Name the path."""
        super().__init__("read", path, "no such object", retryable=False)


class SnapshotError(RiverlockError):
    """A snapshot cannot be used."""

    code = "SNAPSHOT"
    exit_code = 3


class SnapshotNotFoundError(SnapshotError):
    """There is no such epoch, operator or name in the store."""

    code = "SNAPSHOT_NOT_FOUND"

    def __init__(self, what: str, *, store: str, available: str) -> None:
        """Name what was asked for and what there is.

        Args:
            what: What was asked for.
            store: Where.
            available: What the store has instead, to follow on that word.
        """
        super().__init__(
            f"could not find {what} in {store}, which has {available}",
            what=what,
            store=store,
            available=available,
        )

    @classmethod
    def among(
        cls, what: str, *, store: str, kind: str, names: Iterable[str]
    ) -> SnapshotNotFoundError:
        """Return the error of a name that is none of those there are."""
        known = list(names)
        several = "s" if len(known) > 1 else ""
        listed = f"{kind}{several} {', '.join(known)}" if known else f"no {kind}"
        return cls(what, store=store, available=listed)


class SnapshotCorruptedError(SnapshotError):
    """A referenced file is missing or differs from its checksum."""

    code = "SNAPSHOT_CORRUPTED"

    def __init__(self, path: str, *, expected: str, found: str) -> None:
        """Name the file, what the manifest says of it and what is there."""
        super().__init__(
            f"could not read {path}: expected {expected}, found {found}",
            hint="run 'riverlock verify' to see which epochs are still whole;"
            " nothing was overwritten",
            path=path,
            expected=expected,
            found=found,
        )


class UnsupportedFormatError(SnapshotError):
    """The store was written by a newer library."""

    code = "UNSUPPORTED_FORMAT"

    def __init__(self, path: str, *, supported: int, found: object) -> None:
        """Name the versions."""
        super().__init__(
            f"could not read {path}: this version reads store format {supported}, "
            f"found {found}",
            hint="install the riverlock version that wrote it, or a newer one",
            path=path,
            supported=supported,
            found=found,
        )


class CoordinationError(RiverlockError):
    """The epoch protocol stopped this run."""

    code = "COORDINATION"


class FencedError(CoordinationError):
    """Another run owns the flow; this one has stopped and changed nothing."""

    code = "FENCED"
    exit_code = 4
    store: str
    owner: str

    def __init__(self, *, store: str, run: int | None, owner: str) -> None:
        """Name the store, our run and the owner."""
        ours = "this run" if run is None else f"run {run}"
        super().__init__(
            f"{ours} of {store} is fenced: {owner} owns the flow now",
            hint="stop the other run first (riverlock stop), or wait until it ends",
            store=store,
            run=run,
            owner=owner,
        )


class ClusterLostError(CoordinationError):
    """Spark has nobody to run tasks, and has had nobody for too long."""

    code = "CLUSTER_LOST"

    def __init__(self, *, master: str, epoch: int, seconds: int) -> None:
        """Name the cluster, the epoch that waits, and for how long there was nobody."""
        super().__init__(
            f"could not run epoch {epoch}: the Spark application on {master} has had no"
            f" executor for {seconds} seconds",
            hint="nothing of the epoch was committed and earlier ones are untouched;"
            " start the flow again in a new Spark session, since a master that came"
            " back without its memory does not know this one; if the cluster is only"
            " busy, wait longer: executor_timeout=",
            master=master,
            epoch=epoch,
            seconds=seconds,
        )


class EpochAbortedError(CoordinationError):
    """The epoch did not happen; its input is read again."""

    code = "EPOCH_ABORTED"

    def __init__(self, *, epoch: int, reason: str, cause: str) -> None:
        """Name the epoch and why."""
        super().__init__(
            f"epoch {epoch} was aborted ({reason}): {cause}",
            hint="nothing of it was committed; earlier epochs are untouched",
            epoch=epoch,
            reason=reason,
            cause=cause,
        )


class InputChangedError(EpochAbortedError):
    """An input has other rows than were planned; the epoch is planned anew."""

    code = "INPUT_CHANGED"


class SinkError(RiverlockError):
    """A sink did not do its part of the commit."""

    code = "SINK"
    exit_code = 5

    def __init__(self, sink: str, *, epoch: int | None, what: str) -> None:
        """Name the sink, the epoch and the trouble."""
        at = "" if epoch is None else f" epoch {epoch}"
        super().__init__(
            f"sink {sink!r} could not commit{at}: {what}",
            sink=sink,
            epoch=epoch,
            what=what,
        )


class SinkUnavailableError(SinkError):
    """The sink's system does not answer; nothing is lost by waiting for it."""

    code = "SINK_UNAVAILABLE"


class CommitRejectedError(SinkError):
    """The sink refused, finally."""

    code = "COMMIT_REJECTED"


class ForeignEpochError(CommitRejectedError):
    """The sink has an epoch that this store has not decided."""

    code = "FOREIGN_EPOCH"

    def __init__(
        self, sink: str, *, place: str, epoch: int, newest: int | None
    ) -> None:
        """Name the sink, its place, the epoch there, and the newest of the store."""
        known = "" if newest is None else f" (its newest is {newest})"
        what = (
            f"{place} has an epoch {epoch} that this store has not decided{known}: the"
            " store was put back from a backup, or a copy of it has written there"
        )
        RiverlockError.__init__(
            self,
            f"sink {sink!r} could not go on: {what}",
            hint="nothing was written; go on with the copy of the store that wrote it,"
            " or put back what the sink writes to as well, to the moment of the store's"
            " backup, or leave those rows and write elsewhere: another place and"
            " another uid",
            sink=sink,
            place=place,
            epoch=epoch,
            newest=newest,
            what=what,
        )


class CommitUnknownError(SinkError):
    """The sink did not answer; ask it before trying again."""

    code = "COMMIT_UNKNOWN"


class InternalError(RiverlockError):
    """An invariant broke: a bug of ours."""

    code = "INTERNAL"
    exit_code = 2

    def __init__(self, what: str) -> None:
        """Say which invariant broke."""
        super().__init__(
            f"internal error: {what}",
            hint="please report this with the store's newest manifest",
            what=what,
        )
