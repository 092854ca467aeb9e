"""Types that msgspec knows, found out about by one thread at a time.

msgspec describes a class when it is first asked for it. A second thread that asks for
it meanwhile gets the description half made, and reads from nowhere: a segmentation
fault (seen with msgspec 0.22). Regions of a flow are threads, and so are runs.
"""

from __future__ import annotations

import os
import threading
from typing import Any, TypeVar

import msgspec

__all__ = ["known"]

T = TypeVar("T")

_known: set[Any] = set()
_finding_out = threading.Lock()


def known(kind: T) -> T:
    """Have msgspec know a type; return the type. Whoever decodes asks first."""
    if kind not in _known:
        with _finding_out:
            msgspec.msgpack.Decoder(kind)
            _known.add(kind)
    return kind


def _after_fork() -> None:
    # Whoever held it has stayed in the parent.
    global _finding_out
    _finding_out = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
