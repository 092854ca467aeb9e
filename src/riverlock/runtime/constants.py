"""What all keys of a task share: attributes that ``open`` has set, and no others.

The instance of a process lives as long as a task's epoch. An attribute that is no
declared state would lead from one key to the next, in an order that nobody promises,
and be gone after the epoch. What is left on the instance is looked at once, when the
epoch ends and before anything of it counts; a record costs nothing.
"""

from __future__ import annotations

import difflib
import inspect
from functools import cached_property
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import UndeclaredStateError
from riverlock.runtime.mentions import place_of

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Constants"]


class Constants:
    """The attributes of a live process that are not declared."""

    def __init__(self, operator: str, user: Any, declared: Collection[str]) -> None:
        """Take what is there once ``open`` has run."""
        self._operator, self._user, self._declared = operator, user, declared
        self._known = self._found()

    def _found(self) -> dict[str, Any]:
        return {n: v for n, v in vars(self._user).items() if n not in self._declared}

    def check(self) -> None:
        """Check that no attribute was added, replaced or removed since.

        Raises:
            UndeclaredStateError: One was.
        """
        found, known = self._found(), self._known
        for name in [*found, *known]:
            is_same = name in found and name in known and found[name] is known[name]
            if not is_same and not self._is_cached(name):
                close = difflib.get_close_matches(name, self._declared, n=1)
                raise UndeclaredStateError(
                    operator=self._operator,
                    variable=name,
                    meant=close[0] if close and name not in known else None,
                    place=place_of(self._user, name),
                    is_constant=name in known,
                )

    def _is_cached(self, name: str) -> bool:
        """Whether it is computed when it is first read, whichever key that is for."""
        kind = inspect.getattr_static(type(self._user), name, None)
        return isinstance(kind, cached_property)
