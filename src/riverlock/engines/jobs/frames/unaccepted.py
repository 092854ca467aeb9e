"""Expressions that Spark does not accept, in our words and with visible columns."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException

from riverlock.core.errors import InvalidFlowError
from riverlock.core.suggestions import did_you_mean
from riverlock.spark.remote import unlogged

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["explaining", "unaccepted"]

# A name of ours, as Spark suggests it among others: `__rl_seq`, t.`__rl_time`.
_HIDDEN = re.compile(r"(?:,\s*)?(?:`?\w+`?\.)?`?__rl_\w+`?(?=\s*[,\]])")
_NAME = re.compile(r"`((?:[^`]|``)+)`")
# What is of no use to a reader: the name of the condition, its number, a place.
_NOISE = re.compile(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE: \w+|;? line \d+,? pos \d+.*$")


@contextmanager
def explaining(what: str, *, line: str = "") -> Iterator[None]:
    """Let Spark analyse an expression; what it does not accept is told by us alone.

    Raises:
        InvalidFlowError: Spark does not accept it.
    """
    try:
        with unlogged():
            yield
    except (AnalysisException, ParseException) as error:
        raise unaccepted(what, error, line=line) from error


def unaccepted(
    what: str, error: AnalysisException, *, line: str = ""
) -> InvalidFlowError:
    """Return what to raise for an expression that Spark does not accept.

    Args:
        what: The method that received it.
        error: What Spark says.
        line: The user's line.
    """
    text = str(error).strip()
    if "UNRESOLVED_COLUMN" in text or "FIELD_NOT_FOUND" in text:
        name, *known = _NAME.findall(_HIDDEN.sub("", text.splitlines()[0]))
        known = list(dict.fromkeys(known))
        return InvalidFlowError(
            what,
            expected=f"an existing column, such as {', '.join(known)}"
            if known
            else "an existing column",
            found=repr(name),
            hint=did_you_mean(name, known),
            line=line,
        )
    first = text.split(";\n")[0].splitlines()[0]
    return InvalidFlowError(
        what,
        expected="an expression that Spark accepts",
        found=_NOISE.sub("", _HIDDEN.sub("", first)).strip().rstrip("."),
        line=line,
    )
