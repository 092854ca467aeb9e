"""Identifiers, each a type of its own, so that they cannot be mixed up."""

from __future__ import annotations

import re
from typing import NewType

from riverlock.core.errors import InvalidFlowError

__all__ = ["MAIN_REGION", "Epoch", "KeyGroup", "RunNumber", "check_name"]

# The region of everything that no region() was said of.
MAIN_REGION = "main"

Epoch = NewType("Epoch", int)
RunNumber = NewType("RunNumber", int)
KeyGroup = NewType("KeyGroup", int)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def check_name(what: str, name: object) -> str:
    """Return ``name`` if it can be part of a path on every storage.

    Raises:
        InvalidFlowError: It cannot.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidFlowError(
            what,
            expected="1 to 100 letters, digits, '_', '-' or '.', starting with a"
            " letter or digit",
            found=repr(name),
        )
    return name
