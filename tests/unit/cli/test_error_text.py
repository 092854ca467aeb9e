from __future__ import annotations

import json

import pytest

from riverlock.cli.error_text import explain, report
from riverlock.core.errors import (
    CommitRejectedError,
    FencedError,
    InternalError,
    InvalidConfigError,
    SnapshotCorruptedError,
    StorageError,
    UserCodeError,
)

USER = UserCodeError(
    operator="velocity",
    where="on_event",
    cause="ValueError: odd",
    key="ann",
    record="Record(user='ann')",
    epoch=4,
    line="app.py:12 in on_event: raise ValueError('odd')",
)
ERRORS = [
    (InvalidConfigError("x", expected="a", found="b"), 1),
    (USER, 1),
    (InternalError("broken"), 2),
    (KeyError("unexpected"), 2),
    (StorageError("write", "a/b", "full", retryable=True), 3),
    (SnapshotCorruptedError("a/b", expected="1", found="2"), 3),
    (FencedError(store="s", run=None, owner="run 2"), 4),
    (CommitRejectedError("out", epoch=3, what="refused"), 5),
]


@pytest.mark.parametrize(("error", "code"), ERRORS)
def test_report_returns_the_exit_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error, as_json=False, debug=False) == code

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert "not affected" in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize(("error", "code"), ERRORS)
def test_report_as_json_is_one_value(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    report(error, as_json=True, debug=False)

    shown = capsys.readouterr()
    assert json.loads(shown.out)["error"]["exit_code"] == code
    assert shown.err == ""


def test_user_error_names_operator_key_epoch_line_and_record() -> None:
    trouble = explain(USER)

    assert trouble.what == "user code raised ValueError: odd"
    assert trouble.where.splitlines() == [
        "operator 'velocity', on_event, key 'ann', epoch 4",
        "app.py:12 in on_event: raise ValueError('odd')",
        "record: Record(user='ann')",
    ]
    assert "nothing of this epoch" in trouble.unaffected
    assert "dead-letter" in trouble.next_step
