"""The tree of errors, cut by what a caller can do about them.

Constructors take values, never sentences; the class makes the message in the form
*X needs A, got B; do C*. Every error survives pickling,
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
    │   ├─ SnapshotNotFoundError ├─ SnapshotAbandonedError
    │   ├─ SnapshotCorruptedError └─ UnsupportedFormatError
    ├─ CoordinationError
    │   ├─ FencedError          another run owns the flow: stop
    │   ├─ StoreChangedError    the store went back under a live run: stop
    │   ├─ ClusterLostError     Spark has nobody to run tasks: a new session is needed
    │   ├─ ExchangeError        tasks lost each other, or the driver
    │   ├─ EndlessLoopError     rows go round a loop for ever: stop
    │   └─ EpochAbortedError    the epoch did not happen; .reason says why
    │       └─ InputChangedError  nor can it: it is planned anew
    ├─ SinkError
    │   ├─ SinkUnavailableError its system does not answer: waited out
    │   ├─ CommitRejectedError  known and final
    │   │   └─ ForeignEpochError  it has epochs of another copy of the store
    │   └─ CommitUnknownError   must be reconciled, never guessed
    └─ InternalError            an invariant broke: our bug
"""

from riverlock.core.errors.connector import (
    CommitRejectedError,
    CommitUnknownError,
    ForeignEpochError,
    SinkError,
    SinkUnavailableError,
    SourceError,
    SourceUnavailableError,
)
from riverlock.core.errors.coordination import (
    ClusterLostError,
    CoordinationError,
    EndlessLoopError,
    EpochAbortedError,
    ExchangeError,
    FencedError,
    InputChangedError,
    StoreChangedError,
)
from riverlock.core.errors.definition import (
    DefinitionError,
    InvalidConfigError,
    InvalidFlowError,
    InvalidStateSpecError,
)
from riverlock.core.errors.root import (
    InternalError,
    RiverlockError,
)
from riverlock.core.errors.state import (
    StateCorruptedError,
    StateError,
    StateSchemaError,
    StateTypeError,
    UndeclaredStateError,
)
from riverlock.core.errors.store import (
    SnapshotAbandonedError,
    SnapshotCorruptedError,
    SnapshotError,
    SnapshotNotFoundError,
    StorageError,
    StorageNotFoundError,
    UnsupportedFormatError,
)
from riverlock.core.errors.user_code import (
    TimeRangeError,
    UserCodeError,
)

__all__ = [
    "ClusterLostError",
    "CommitRejectedError",
    "CommitUnknownError",
    "CoordinationError",
    "DefinitionError",
    "EndlessLoopError",
    "EpochAbortedError",
    "ExchangeError",
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
    "SnapshotAbandonedError",
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
    "StoreChangedError",
    "TimeRangeError",
    "UndeclaredStateError",
    "UnsupportedFormatError",
    "UserCodeError",
]
