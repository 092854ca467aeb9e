"""Parameters: values of an operator that can be changed while its flow runs.

A declaration is inert data, like that of state. In the worker the value in force is an
attribute of the live process's class: reading ``self.limit`` is plain attribute access.
It is the same in all tasks of an epoch, and recorded with it.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

from riverlock.core.errors import InvalidFlowError
from riverlock.core.keywords import told_methods
from riverlock.core.values.parameter_kinds import KINDS, kind_of, live, stored
from riverlock.snapshot.format.records import Parameter

__all__ = ["Param", "params_of"]

T = TypeVar("T")


@told_methods
class Param(Generic[T]):
    """A parameter of a process: ``limit = rl.Param(100)``, read as ``self.limit``.

    ``handle.set("velocity", limit=200)`` or ``riverlock set`` change it in a running
    flow, from one named epoch on. A value that was set stays with the store, even if
    the default in the code changes.
    """

    def __init__(self, default: T, *, doc: str = "") -> None:
        """Declare it; the kind of the default is the kind of all its values.

        Args:
            default: An int, float, str, bool, Decimal, or a list or dictionary of JSON
                values.
            doc: What it does, for the people who change it.

        Raises:
            InvalidFlowError: The value is impossible.
        """
        self.name = ""
        self.doc = doc
        kind = kind_of(default)
        if kind is None:
            raise InvalidFlowError(
                "rl.Param()",
                expected=f"a default that is one of {', '.join(KINDS)}",
                found=repr(default),
            )
        self.kind = kind
        try:
            self.default = stored(kind, default)
        except ValueError as error:
            raise InvalidFlowError(
                "rl.Param()",
                expected=f"a default of kind {kind} ({error})",
                found=repr(default),
            ) from error

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the attribute's name."""
        # Not looked at here: Pythons before 3.12 wrap what is raised by now.
        self.name = name

    def __get__(self, instance: object, owner: type) -> T:
        """Return the default: the value of an epoch is known in the worker."""
        if instance is None:
            return cast("T", self)
        return cast("T", live(self.kind, self.default))

    def __set__(self, instance: object, value: T) -> None:
        """Refuse: the value belongs to the epoch."""
        raise InvalidFlowError(
            f"parameter {self.name!r}",
            expected="to be set from outside",
            found="an assignment in the process",
            hint="give a default in the class, and change it with riverlock set",
        )

    @property
    def record(self) -> Parameter:
        """What manifests carry while nothing is set."""
        return Parameter(type=self.kind, default=self.default, doc=self.doc)


def params_of(owner: type) -> dict[str, Param[Any]]:
    """Return the declared parameters, base classes first.

    Raises:
        InvalidFlowError: One has a private name.
    """
    found: dict[str, Param[Any]] = {}
    for cls in reversed(owner.__mro__):
        for name, attribute in vars(cls).items():
            if isinstance(attribute, Param):
                found[name] = attribute
            else:
                found.pop(name, None)
    for name in found:
        if name.startswith("_"):
            raise InvalidFlowError(
                f"parameter {name!r} of {owner.__name__}",
                expected="a public name",
                found=repr(name),
            )
    return found
