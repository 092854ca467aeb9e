"""Parameters of an operator in a task: plain values, which user code only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.errors import StateError
from riverlock.core.values.parameter_kinds import live
from riverlock.core.values.sameness import is_same

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from riverlock.program.params import Param

__all__ = ["Parameters"]


class Parameters:
    """What is in force in one epoch.

    Attributes:
        live: Values by name, to stand on the class of the live process.
    """

    def __init__(
        self, declared: Mapping[str, Param[Any]], stored: Mapping[str, Any]
    ) -> None:
        """Resolve them, once per task and epoch; what is not told has its default."""
        self._stored = {
            name: (param.kind, stored.get(name, param.default))
            for name, param in declared.items()
        }
        self.live = {n: live(kind, value) for n, (kind, value) in self._stored.items()}

    def check_unchanged(self, operator: str, assigned: Container[str]) -> None:
        """Check that user code has left them alone: looked at once, not per record.

        Raises:
            StateError: It has assigned one, or changed a list or dictionary in place.
        """
        for name, (kind, value) in self._stored.items():
            if name in assigned or not is_same(self.live[name], live(kind, value)):
                raise StateError(
                    f"parameter {name!r} of operator {operator!r} was written by its"
                    " process; nothing of the epoch was stored",
                    hint="keep what changes per key in rl.Value",
                )
