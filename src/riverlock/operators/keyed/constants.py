"""What all keys of a task share: attributes that ``open`` has set, and no others.

The instance of a process lives as long as a task's epoch. An attribute that is no
declared state would lead from one key to the next, in an order that nobody promises,
and be gone after the epoch. What is left on the instance is looked at once, when the
epoch ends and before anything of it counts; a record costs nothing.

Classes, and lists and the like that ``__init__`` made, outlive the epoch as long as the
worker does: what is in them may not change either. What ``open`` made may be filled,
as a cache is. Nobody looks into other objects, modules and closures.
"""

from __future__ import annotations

import difflib
import inspect
from collections import deque
from functools import cached_property
from operator import is_
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from riverlock.core.errors import UndeclaredStateError
from riverlock.operators.keyed.mentions import place_of
from riverlock.program.process import Process

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

__all__ = ["Computed", "Constants"]

# What has others inside, and can be looked into.
_INSIDE: Final = (list, tuple, dict, set, frozenset, deque, bytearray)
# Beyond these it is looked only at how many there are: they are in tables.
_MANY: Final = 10_000


class Computed(cached_property[Any]):
    """A cached property of a live process: computed once per epoch, never assigned."""

    def __set__(self, instance: object, value: Any) -> None:
        """Refuse: it would lead from one key to the next."""
        message = (
            f"{self.attrname!r} is computed once for all keys: it cannot be assigned"
        )
        raise AttributeError(message)


class Constants:
    """The attributes of a live process that are not declared."""

    def __init__(
        self,
        operator: str,
        user: Any,
        declared: Collection[str],
        made: Mapping[str, Any],
    ) -> None:
        """Take what is there once ``open`` has run.

        Args:
            operator: Whose process it is.
            user: The live process.
            declared: Names of its state and parameters.
            made: The attributes that ``__init__`` had set, on the driver.
        """
        self._operator, self._user, self._declared = operator, user, declared
        self._known = self._found()
        self._classes = [
            (cls, dict(vars(cls)))
            for cls in type(user).__mro__
            if cls not in Process.__mro__
        ]
        lasting = {n: v for n, v in self._known.items() if made.get(n) is v}
        for _, names in self._classes:
            lasting |= {n: v for n, v in names.items() if n not in lasting}
        self._contents = {
            n: (v, _contents(v)) for n, v in lasting.items() if isinstance(v, _INSIDE)
        }

    def _found(self) -> dict[str, Any]:
        return {n: v for n, v in vars(self._user).items() if n not in self._declared}

    def check(self) -> None:
        """Check that no attribute was added, replaced, removed or filled since.

        Raises:
            UndeclaredStateError: One was.
        """
        for name in _differing(self._known, self._found()):
            if not self._is_cached(name):
                self._refuse(name, is_constant=name in self._known)
        for cls, before in self._classes:
            for name in _differing(before, vars(cls)):
                if not name.startswith("__"):
                    self._refuse(name, is_constant=True)
        for name, (value, inside) in self._contents.items():
            if not inside.is_same(_contents(value)):
                self._refuse(name, is_constant=True)

    def _refuse(self, name: str, *, is_constant: bool) -> NoReturn:
        close = difflib.get_close_matches(name, self._declared, n=1)
        raise UndeclaredStateError(
            operator=self._operator,
            variable=name,
            meant=close[0] if close and not is_constant else None,
            place=place_of(self._user, name),
            is_constant=is_constant,
        )

    def _is_cached(self, name: str) -> bool:
        """Whether it is computed when it is first read, whichever key that is for."""
        kind = inspect.getattr_static(type(self._user), name, None)
        return isinstance(kind, cached_property)


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield names that are new, gone, or stand for another object."""
    for name in {**before, **now}:
        if name not in before or name not in now or before[name] is not now[name]:
            yield name


class _Contents(NamedTuple):
    """All objects that are inside of one, at any depth."""

    objects: list[Any]
    others: int  # that were only counted

    def is_same(self, now: _Contents) -> bool:
        is_as_large = (len(self.objects), self.others) == (len(now.objects), now.others)
        return is_as_large and all(map(is_, self.objects, now.objects))


def _contents(value: Any) -> _Contents:
    found, others = [value], 0
    seen: set[int] = set()
    for each in found:  # which grows meanwhile
        if not isinstance(each, _INSIDE) or id(each) in seen:
            continue
        seen.add(id(each))
        if len(found) + len(each) > _MANY:
            others += len(each)
            continue
        found += each
        if isinstance(each, dict):
            found += each.values()
    return _Contents(found, others)
