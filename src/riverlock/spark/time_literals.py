"""Literals of SQL that are a time of day: refused.

The parser takes the time at which it parses, which differs in each stage.
"""

from __future__ import annotations

import re
from typing import Final

from riverlock.core.errors import InvalidFlowError

__all__ = ["check_literals", "time_refused"]

_SPECIAL: Final = re.compile(
    r"\b(?:date|timestamp(?:_ntz|_ltz)?)\s*(['\"])\s*(?:now|today|tomorrow|yesterday)"
    r"\s*\1",
    re.IGNORECASE,
)


def check_literals(text: str) -> None:
    """Check whether SQL has a literal that is a time of day.

    Raises:
        InvalidFlowError: It has.
    """
    found = _SPECIAL.search(text)
    if found is not None:
        raise time_refused(found[0])


def time_refused(found: str) -> InvalidFlowError:
    """Return the error for a time that cannot be that of the epoch."""
    return InvalidFlowError(
        "time of day in an expression",
        expected="a function of the epoch's time: now(), current_timestamp(),"
        " current_date(), localtimestamp(), unix_timestamp()",
        found=found,
        hint="Spark would take another time in each stage and each attempt; for"
        " 'today' write current_date(), for 'epoch' timestamp_seconds(0)",
    )
