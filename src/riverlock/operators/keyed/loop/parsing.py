"""One thread at a time parses Python: in 3.11, two at once make it fail by chance.

``ast.parse``, and ``compile`` of a tree, count their depth for the whole interpreter:
``SystemError: AST constructor recursion depth mismatch``. Regions of a flow begin, and
run, each in a thread of its own.
"""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["PARSING"]

PARSING: Final = threading.RLock()
