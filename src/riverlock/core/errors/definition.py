"""Errors of a description that cannot be: nothing has run."""

from __future__ import annotations

from riverlock.core.errors.root import RiverlockError

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

    def __init__(self, what: str, *, expected: str, found: str, hint: str = "") -> None:
        """Say what was expected, what was found, and what to write instead."""
        super().__init__(
            f"could not use {what}: expected {expected}, found {found}",
            hint=hint,
            what=what,
            expected=expected,
            found=found,
        )


class InvalidFlowError(DefinitionError):
    """The graph of the flow is impossible."""

    code = "INVALID_FLOW"


class InvalidStateSpecError(DefinitionError):
    """A declared state cannot be stored."""

    code = "INVALID_STATE_SPEC"


class InvalidConfigError(DefinitionError):
    """A setting, file or environment does not fit."""

    code = "INVALID_CONFIG"
