"""The root of the tree of errors, which survives pickling; and our own bugs."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["InternalError", "RiverlockError"]


def _rebuild(cls: type[RiverlockError], state: dict[str, Any]) -> RiverlockError:
    error = cls.__new__(cls)
    error.__dict__.update(state)
    error.args = (state["message"],)
    return error


class RiverlockError(Exception):
    """Root of all errors raised on purpose.

    Attributes:
        code: Stable name of the situation, for programs.
        message: What failed, on what, what was expected and found.
        hint: What to do next, for people; may be empty.
        exit_code: What the command line exits with.
    """

    code: ClassVar[str] = "RIVERLOCK"
    exit_code: ClassVar[int] = 1
    message: str
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


class InternalError(RiverlockError):
    """An invariant broke: a bug of ours."""

    code = "INTERNAL"
    exit_code = 2
    what: str

    def __init__(self, what: str) -> None:
        """Say which invariant broke."""
        super().__init__(
            f"internal error: {what}",
            hint="please report this with the store's newest manifest",
            what=what,
        )
