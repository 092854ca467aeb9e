"""Errors of state: what user code writes, what a working copy holds."""

from __future__ import annotations

from riverlock.core.errors.root import RiverlockError

__all__ = [
    "StateCorruptedError",
    "StateError",
    "StateSchemaError",
    "StateTypeError",
    "UndeclaredStateError",
]


class StateError(RiverlockError):
    """State could not be read or written."""

    code = "STATE"


class StateTypeError(StateError, TypeError):
    """User code wrote a value that the declared type cannot hold."""

    code = "STATE_TYPE"
    operator: str
    variable: str
    key: object
    expected: str
    found: str
    # The record that left it, and the line that did or may have; once they are known.
    record: str | None = None
    epoch: int | None = None
    line: str = ""

    def __init__(
        self, *, operator: str, variable: str, key: object, expected: str, found: object
    ) -> None:
        """Name the variable, the key, the declared type and the value."""
        super().__init__(
            f"state {variable!r} of operator {operator!r}, key {key!r} needs"
            f" {expected}, got {type(found).__name__} {found!r:.200}",
            hint="change the declared type or the value that is assigned",
            operator=operator,
            variable=variable,
            key=key,
            expected=expected,
            found=repr(found)[:200],
        )

    def locate(self, *, record: str, epoch: int | None) -> None:
        """Say of which record it is."""
        self.record, self.epoch = record, epoch
        at = "" if epoch is None else f", epoch {epoch}"
        self.message += f"{at}\n  {self.line}".rstrip()
        self.message += f"\n  record: {record}"
        self.hint = (
            "nothing of this epoch was committed; change the declared type or the"
            " value, or send such records to a dead-letter sink with on_error="
        )


class UndeclaredStateError(StateError):
    """User code kept something in an attribute that is no declared state."""

    code = "STATE_UNDECLARED"
    operator: str
    variable: str
    meant: str | None
    place: str | None
    is_constant: bool

    def __init__(
        self,
        *,
        operator: str,
        variable: str,
        meant: str | None,
        place: str | None,
        is_constant: bool,
    ) -> None:
        """Name the attribute, the state that was meant, and where it is assigned."""
        what = "is not declared state"
        advice = (
            f"declare it, as in {variable} = rl.Value('long'); or set it in open, if"
        )
        if is_constant:
            what = "was set by open, __init__ or its class, and may not change then"
            advice = "declare what changes as state; make it in open only, if"
        did_you = "" if meant is None else f"; did you mean {meant!r}?"
        at = "" if place is None else f"\n  {place}"
        super().__init__(
            f"{variable!r} {what}{did_you}{at}\n  in operator {operator!r}: all keys of"
            " a task would share it; nothing of the epoch was stored",
            hint=f"{advice} it is the same for all keys",
            operator=operator,
            variable=variable,
            meant=meant,
            place=place,
            is_constant=is_constant,
        )


class StateCorruptedError(StateError):
    """A local working copy failed its checksum; it is rebuilt, never trusted."""

    code = "STATE_CORRUPTED"
    path: str
    why: str

    def __init__(self, *, path: str, why: str) -> None:
        """Name the working copy and what was wrong with it."""
        super().__init__(f"working copy {path} is damaged: {why}", path=path, why=why)


class StateSchemaError(StateError):
    """Stored state does not fit the declared state."""

    code = "STATE_SCHEMA"
    operator: str
    expected: str
    found: str

    def __init__(
        self, *, operator: str, expected: str, found: str, hint: str = ""
    ) -> None:
        """Show the declared and the stored schema."""
        super().__init__(
            f"operator {operator!r} cannot continue with its stored state:"
            f" {expected}, was {found}",
            hint=hint
            or "go back to the earlier declaration, give the variable migrate=, or the"
            " operator a new uid; `riverlock check APP.py --store STORE` shows it all",
            operator=operator,
            expected=expected,
            found=found,
        )
