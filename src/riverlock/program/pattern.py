"""Patterns of events: what ``match`` looks for, as frozen data.

    rl.pattern("a", is_login).then("b", is_payment).within("10 minutes")

A pattern knows its steps, and which of them an event can be. ``automaton`` says what
happens to matches in progress, ``matching`` how they are remembered.
"""

from __future__ import annotations

import enum
import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidFlowError
from riverlock.core.keywords import told_keywords
from riverlock.program.time_basis import positive_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta
    from typing import TypeAlias

    # Of the event, or of the event and those that were matched before, by name.
    Predicate: TypeAlias = Callable[[Any], Any] | Callable[[Any, dict[str, Any]], Any]

__all__ = ["Kind", "Pattern", "Step", "Verdict", "pattern"]


class Kind(enum.Enum):
    """How a step follows the one before it."""

    NEXT = "the event right after"
    THEN = "some later event"
    OPTIONAL = "some later event, or none"
    WITHOUT = "no event in between"


class Verdict(enum.Enum):
    """What an event that is not a step of a match means for it."""

    GOES_ON = "the event is skipped"
    FAILS = "the event must not be there"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A named condition on an event."""

    name: str
    kind: Kind
    predicate: Callable[..., Any]
    # Whether the predicate also takes the events that were matched before.
    takes_matched: bool

    def fits(self, event: Any, matched: Mapping[str, Any]) -> bool:
        """Ask the predicate."""
        if self.takes_matched:
            return bool(self.predicate(event, dict(matched)))
        return bool(self.predicate(event))


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A sequence of steps; made by ``rl.pattern`` and its own methods.

    Predicates take the event, or the event and a dictionary of the events matched
    so far, by name.
    """

    steps: tuple[Step, ...]
    span: timedelta | None = None

    def next(self, name: str, predicate: Predicate) -> Pattern:
        """Require the event right after the previous one to fit."""
        if self.steps[-1].kind is Kind.WITHOUT:
            raise InvalidFlowError(
                f"next({name!r}) of a pattern",
                expected="then() after without()",
                found="next(), which leaves no room for an event in between",
            )
        return self._with(name, Kind.NEXT, predicate)

    def then(self, name: str, predicate: Predicate) -> Pattern:
        """Require a later event to fit; events that do not fit are skipped."""
        return self._with(name, Kind.THEN, predicate)

    def optional(self, name: str, predicate: Predicate) -> Pattern:
        """Take an event that fits if it comes before that of the next step.

        At the end of a pattern, the match waits for it until the time is over.
        """
        return self._with(name, Kind.OPTIONAL, predicate)

    def without(self, name: str, predicate: Predicate) -> Pattern:
        """Forbid events that fit, between the previous event and the next.

        At the end of a pattern: until the time is over.
        """
        return self._with(name, Kind.WITHOUT, predicate)

    def within(self, span: str | timedelta) -> Pattern:
        """Bound the time: all events come less than ``span`` after the first."""
        return replace(self, span=positive_duration("within of a pattern", span))

    def _with(self, name: str, kind: Kind, predicate: Predicate) -> Pattern:
        if any(step.name == name for step in self.steps):
            raise InvalidFlowError(
                f"step {name!r} of a pattern",
                expected="a name that no other step has",
                found=repr(name),
            )
        return replace(self, steps=(*self.steps, _step(name, kind, predicate)))

    def place_of(
        self, event: Any, matched: Mapping[str, Any], last: int
    ) -> int | Verdict:
        """Return which step an event is for a match, or what else it means for it.

        Of several steps it is the first. An event that is a step is not in between, so
        ``without`` does not forbid it.

        Args:
            event: The event.
            matched: The events of the match so far.
            last: The step of the newest of them.
        """
        is_forbidden = False
        for place in range(last + 1, len(self.steps)):
            step = self.steps[place]
            if step.kind is Kind.WITHOUT:
                is_forbidden = is_forbidden or step.fits(event, matched)
            elif step.fits(event, matched):
                return place
            elif step.kind is Kind.NEXT:
                return Verdict.FAILS
            elif step.kind is Kind.THEN:
                break
        return Verdict.FAILS if is_forbidden else Verdict.GOES_ON

    def ends_at(self, last: int) -> bool:
        """Tell whether nothing can follow a step."""
        return last == len(self.steps) - 1

    def may_end_at(self, last: int) -> bool:
        """Tell whether nothing has to follow a step until the time is over."""
        rest = self.steps[last + 1 :]
        return all(s.kind in (Kind.OPTIONAL, Kind.WITHOUT) for s in rest)


@told_keywords
def pattern(name: str, predicate: Predicate) -> Pattern:
    """Begin a pattern: each event that fits may be the first of a match.

    Args:
        name: The event's name in the matches.
        predicate: A function of the event.

    Raises:
        InvalidFlowError: The predicate is not a function of one or two arguments.
    """
    return Pattern(steps=(_step(name, Kind.THEN, predicate),))


def _step(name: Any, kind: Kind, predicate: Predicate) -> Step:
    if not isinstance(name, str) or not name:
        raise InvalidFlowError("step of a pattern", expected="a name", found=repr(name))
    count = _argument_count(predicate)
    if count not in (1, 2):
        raise InvalidFlowError(
            f"predicate of step {name!r}",
            expected="a function of the event, or of the event and those before",
            found=repr(predicate) if count is None else f"one of {count} arguments",
        )
    return Step(name=name, kind=kind, predicate=predicate, takes_matched=count == 2)


def _argument_count(predicate: object) -> int | None:
    """Return how many arguments a function needs; None if it is not a function."""
    if not callable(predicate):
        return None
    try:
        parameters = inspect.signature(predicate).parameters.values()
    except ValueError:
        return 1  # written in C, such as operator.attrgetter's: unknown, so the event
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    return sum(p.kind in positional and p.default is p.empty for p in parameters)
