"""The argument of ``filter``: a function of records, or a condition that Spark runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from riverlock.core.errors import InvalidFlowError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["is_function"]


def is_function(
    condition: object, **of_functions: object
) -> TypeGuard[Callable[[Any], Any]]:
    """Tell whether a condition is a function, rather than SQL text or a ``Column``.

    Args:
        condition: The argument of ``filter``.
        of_functions: Options that only functions have, None where absent.

    Raises:
        InvalidFlowError: It is a Spark condition, with options of functions.
    """
    # Columns can be called, and PySpark may not be loaded.
    is_column = type(condition).__module__.startswith("pyspark.")
    if not isinstance(condition, str) and not is_column:
        return True
    if any(given is not None for given in of_functions.values()):
        raise InvalidFlowError(
            "filter()",
            expected=f"no {'= and '.join(of_functions)}= beside SQL text or a Column",
            found=repr(condition),
            hint="leave them out: Spark runs the condition, no Python is called",
        )
    return False
