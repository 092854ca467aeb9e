from __future__ import annotations

import pickle
from typing import get_type_hints

import pytest

from riverlock.core import errors
from riverlock.core.errors import RiverlockError

EXAMPLES: list[RiverlockError] = [
    errors.RiverlockError("text", hint="do this", extra=1),
    errors.DefinitionError("x", expected="a", found="b", hint="c"),
    errors.InvalidFlowError("x", expected="a", found="b"),
    errors.InvalidStateSpecError("x", expected="a", found="b"),
    errors.InvalidConfigError("x", expected="a", found="b"),
    errors.UserCodeError(
        operator="op",
        where="on_event",
        cause="ZeroDivisionError: division by zero",
        key=("a", None),
        record="Record(a=1)",
        epoch=7,
        line="app.py:3 in on_event: 1 / 0",
        trace="Traceback",
    ),
    errors.TimeRangeError("+10000-01-01", column="at", operator="op", key="a", epoch=7),
    errors.StateError("text"),
    errors.StateTypeError(
        operator="op", variable="spent", key="ann", expected="double", found=object
    ),
    errors.StateCorruptedError(path="p", why="w"),
    errors.StateSchemaError(operator="op", expected="a", found="b"),
    errors.UndeclaredStateError(
        operator="op",
        variable="carts_at",
        meant="cart_at",
        place="app.py:3 in on_event",
        is_constant=False,
    ),
    errors.SourceError("orders", what="gone", hint="h"),
    errors.StorageError("put", "a/b", "no space left", retryable=True),
    errors.StorageNotFoundError("a/b"),
    errors.SnapshotError("text"),
    errors.SnapshotNotFoundError("epoch 7", store="s", available="none"),
    errors.SnapshotAbandonedError("v1", store="s", why="no answer from 'east'"),
    errors.SnapshotCorruptedError("a/b", expected="x", found="y"),
    errors.UnsupportedFormatError("flow.json", supported=1, found=2),
    errors.CoordinationError("text"),
    errors.FencedError(store="s", run=3, owner="host:1"),
    errors.StoreChangedError(store="s", run=3, epoch=7, lacks="epoch 6"),
    errors.EndlessLoopError(
        "again", operator="op", region="main", rows=3, max_rounds=10
    ),
    errors.ClusterLostError(master="spark://host:7077", epoch=7, seconds=300),
    errors.ExchangeError("peer lost", what="task 3 was killed", peer=3),
    errors.EpochAbortedError(epoch=7, reason="task", cause="it died"),
    errors.InputChangedError(epoch=7, reason="source", cause="3 rows are 2 now"),
    errors.SinkError("files", epoch=3, what="refused"),
    errors.SourceUnavailableError("in", what="Kafka at host:9092 does not answer"),
    errors.SinkUnavailableError("table", epoch=3, what="connection refused"),
    errors.CommitRejectedError("files", epoch=None, what="refused"),
    errors.ForeignEpochError("out", place="t", epoch=9, newest=3),
    errors.CommitUnknownError("files", epoch=3, what="no answer"),
    errors.InternalError("votes differ"),
]


def test_every_error_has_an_example() -> None:
    assert {type(e).__name__ for e in EXAMPLES} == set(errors.__all__)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_error_survives_pickling(error: RiverlockError) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
    assert (copy.code, copy.exit_code, copy.hint) == (
        error.code,
        error.exit_code,
        error.hint,
    )


def test_codes_are_distinct() -> None:
    codes = [type(e).code for e in EXAMPLES]

    assert len(set(codes)) == len(codes)


def test_messages_say_where_and_what_to_do() -> None:
    found = {type(e).__name__: str(e) for e in EXAMPLES}

    assert found["InvalidConfigError"].startswith("x needs a, got b\n  /")
    assert found["StorageNotFoundError"] == "could not read a/b: no such object"
    assert found["UserCodeError"].startswith(
        "user code raised ZeroDivisionError: division by zero, at operator 'op',"
        " on_event, key ('a', None), epoch 7\n  app.py:3 in on_event: 1 / 0\n"
        "  record: Record(a=1)"
    )
    assert "'spent' of operator 'op', key 'ann'" in found["StateTypeError"]
    assert found["UndeclaredStateError"].startswith(
        "'carts_at' is not declared state; did you mean 'cart_at'?\n"
        "  app.py:3 in on_event\n  in operator 'op': all keys"
    )


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.InvalidConfigError, ValueError),
        (errors.StorageError, OSError),
        (errors.StateTypeError, TypeError),
    ],
)
def test_errors_are_also_what_python_calls_them(
    kind: type[Exception], builtin: type[Exception]
) -> None:
    assert issubclass(kind, builtin)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_values_of_an_error_are_declared_attributes(error: RiverlockError) -> None:
    declared = get_type_hints(type(error))

    for name, value in error.__dict__.items():
        if name == "extra":  # of the bare root above
            continue
        assert name in declared, f"{type(error).__name__}.{name}"
        assert isinstance(value, declared[name])


def test_an_epoch_that_is_not_known_is_none() -> None:
    aborted = errors.EpochAbortedError(epoch=None, reason="planning", cause="no disk")

    assert aborted.epoch is None
    assert str(aborted).startswith("the epoch was aborted (planning): no disk")
