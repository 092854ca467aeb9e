"""Values that an expression cannot be evaluated for, where Spark raises as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import pyarrow as pa

__all__ = ["Fault", "WrongValueError"]


class WrongValueError(ArithmeticError):
    """A value that Spark, too, raises an error for.

    Attributes:
        condition: Spark's name of the error, such as ``DIVIDE_BY_ZERO``.
        detail: What is wrong, with the values.
        place: The number of the row within the rows that were evaluated.
    """

    def __init__(self, condition: str, detail: str, place: int) -> None:
        """Name the error and the row."""
        super().__init__(f"[{condition}] {detail}")
        self.condition, self.detail, self.place = condition, detail, place


@dataclass(frozen=True, eq=False)
class Fault:
    """What a kernel returns if it has failed for some rows.

    Attributes:
        values: The results; anything where the row is wrong.
        wrong: Which rows are wrong; never those of a null.
        condition: Spark's name of the error.
        detail: Tells of a row what is wrong.
    """

    values: pa.Array
    wrong: np.ndarray
    condition: str
    detail: Callable[[int], str]
