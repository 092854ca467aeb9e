"""What a kernel is: a function of whole columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from riverlock.columnar.expressions import Call
    from riverlock.columnar.wrong import Fault

__all__ = ["Function", "Kernel"]

Function: TypeAlias = "Callable[[Call, Sequence[pa.Array]], pa.Array | Fault]"


@dataclass(frozen=True)
class Kernel:
    """A function of arrays.

    Attributes:
        function: From the call, for its types and options, and the values of its
            arguments, to its own values.
        fails: Whether there are values that it returns a ``Fault`` for; the call may
            decide.
        of_values: Whether it is null where one of its arguments is; what follows a null
            is then not evaluated.
    """

    function: Function
    fails: bool | Callable[[Call], bool] = False
    of_values: bool = True

    def can_fail(self, call: Call) -> bool:
        """Tell whether there are values that a call fails for."""
        return self.fails if isinstance(self.fails, bool) else self.fails(call)
