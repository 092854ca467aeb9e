"""How declared state is reached as attributes of a live process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from riverlock.state.handles import ValueHandle
    from riverlock.state.spec import Value
    from riverlock.state.visit import Lender

__all__ = [
    "DefaultAttribute",
    "HandleAttribute",
    "InPlace",
    "ObjectAttribute",
    "ValueAttribute",
]


class HandleAttribute:
    """Leads ``self.recent`` to its handle; assigning replaces the content."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def __get__(self, instance: object, owner: type) -> Any:
        return self._handle

    def __set__(self, instance: object, values: Any) -> None:
        self._handle.replace(values)

    def __delete__(self, instance: object) -> None:
        self._handle.clear()


class ValueAttribute:
    """Leads ``self.token`` to the handle of an expiring value."""

    def __init__(self, handle: ValueHandle, spec: Value) -> None:
        self._handle, self._spec = handle, spec

    def __get__(self, instance: object, owner: type) -> Any:
        value = self._handle.get()
        if value is not None:
            return value
        if self._spec.is_copied:
            return self._handle.lend(self._spec.fresh())
        return self._spec.default

    def __set__(self, instance: object, value: Any) -> None:
        self._handle.set(value)

    def __delete__(self, instance: object) -> None:
        self._handle.set(None)


class InPlace:
    """A value of a row that can be changed in place.

    Whoever has it may change it, so it is settled after each record that has asked for
    it: the next one may be of any epoch.
    """

    def __init__(
        self, name: str, lent: list[Lender], settle: Callable[[str], None]
    ) -> None:
        self._name, self._lent, self._settle = name, lent, settle
        self._is_lent = False

    def lend(self) -> None:
        """Take note that somebody has it."""
        if not self._is_lent:
            self._is_lent = True
            self._lent.append(self)

    def settle(self) -> None:
        """Bring it to a normal copy, on which nobody has a hold."""
        self._is_lent = False
        self._settle(self._name)


class ObjectAttribute:
    """Leads ``self.totals`` to a value that can be changed in place."""

    def __init__(self, spec: Value, value: InPlace) -> None:
        self._spec, self._value = spec, value

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self._spec
        self._value.lend()
        fields = instance.__dict__
        found = fields.get(self._spec.name)
        if found is None and self._spec.is_copied:
            found = fields[self._spec.name] = self._spec.fresh()
        return found

    def __set__(self, instance: Any, value: Any) -> None:
        self._value.lend()
        instance.__dict__[self._spec.name] = value


class DefaultAttribute:
    """Lends a copy of a default that could be changed in place.

    Not a data descriptor: once the copy is on the instance, reading it is plain.
    """

    def __init__(self, lend: Callable[[Value], Any], spec: Value) -> None:
        self._lend, self._spec = lend, spec

    def __get__(self, instance: object, owner: type) -> Any:
        return self._lend(self._spec)
