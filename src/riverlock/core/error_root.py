"""The root of the tree of errors (core/errors), which survives pickling."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["RiverlockError"]


def _rebuild(cls: type[RiverlockError], state: dict[str, Any]) -> RiverlockError:
    error = cls.__new__(cls)
    error.__dict__.update(state)
    error.args = (state["message"],)
    return error


class RiverlockError(Exception):
    """Root of all errors raised on purpose.

    Attributes:
        code: Stable name of the situation, for programs.
        hint: What to do next, for people; may be empty.
        exit_code: What the command line exits with.
    """

    code: ClassVar[str] = "RIVERLOCK"
    exit_code: ClassVar[int] = 1
    hint: str = ""

    def __init__(self, message: str, *, hint: str = "", **values: object) -> None:
        """Keep the values as attributes and compose the text once."""
        self.hint = hint
        self.message = message
        self.__dict__.update(values)
        super().__init__(message)

    def __str__(self) -> str:
        """Return the message and, after it, what to do."""
        return f"{self.message}; {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by attributes: constructors take values, not the message."""
        return _rebuild, (type(self), self.__dict__)
