"""Errors of a description that cannot be: nothing has run."""

from __future__ import annotations

from riverlock.core.errors.root import RiverlockError
from riverlock.core.user_lines import calling_line

__all__ = [
    "DefinitionError",
    "InvalidConfigError",
    "InvalidFlowError",
    "InvalidStateSpecError",
]


class DefinitionError(RiverlockError, ValueError):
    """The description is impossible; raised before anything runs."""

    code = "DEFINITION"
    what: str
    expected: str
    found: str
    # The user's own line: file, number, function and text; empty: there is none.
    line: str
    # Whether the line is that of what is wrong, or only one that led there.
    is_placed: bool

    def __init__(
        self,
        what: str,
        *,
        expected: str,
        found: str,
        hint: str = "",
        line: str | None = None,
    ) -> None:
        """Say what was expected, what was found, and what to write instead.

        Args:
            what: What was used: the subject of the sentence.
            expected: What it needs.
            found: What it got.
            hint: What to write instead.
            line: The user's line; default: the one that led here.
        """
        super().__init__(
            f"{what} needs {expected}, got {found}",
            hint=hint,
            what=what,
            expected=expected,
            found=found,
            line=line or calling_line(),
            is_placed=bool(line),
        )

    def place(self, line: str) -> None:
        """Take the line of what is wrong, unless a nearer one is known."""
        if line and not self.is_placed:
            self.line, self.is_placed = line, True

    def __str__(self) -> str:
        """Return the message, what to do and, on a line of its own, where it was."""
        told = super().__str__()
        return f"{told}\n  {self.line}" if self.line else told


class InvalidFlowError(DefinitionError):
    """The graph of the flow is impossible."""

    code = "INVALID_FLOW"


class InvalidStateSpecError(DefinitionError):
    """A declared state cannot be stored."""

    code = "INVALID_STATE_SPEC"


class InvalidConfigError(DefinitionError):
    """A setting, file or environment does not fit."""

    code = "INVALID_CONFIG"
