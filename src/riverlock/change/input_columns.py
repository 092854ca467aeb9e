"""What becomes of a flow whose sources have other columns than before: a report.

A column that is new, or holds more, is no reason to stop. One that is gone is, if code
of the user was given it: whether the code still asks for it cannot be seen from here,
and would be found out by the first row. What Spark is asked for by name, Spark misses
itself when the flow is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from riverlock.change.upgrade import Action, Step
from riverlock.change.widening import is_wider
from riverlock.core.errors import InvalidConfigError
from riverlock.core.types import schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from riverlock.core.types import Type

__all__ = ["InputChanges", "plan_inputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputChanges:
    """How the columns of sources differ from those of an epoch.

    Attributes:
        epoch: The epoch.
        steps: Each difference, by source and column.
    """

    epoch: int
    steps: tuple[Step, ...]

    @property
    def refusals(self) -> tuple[InvalidConfigError, ...]:
        """What forbids to go on, by source."""
        wrong = [s.operator for s in self.steps if s.action is Action.REFUSE]
        return tuple(self._refusal(source) for source in dict.fromkeys(wrong))

    def check(self) -> None:
        """Refuse what cannot be gone on with.

        Raises:
            InvalidConfigError: Nothing was touched.
        """
        for error in self.refusals:
            raise error

    def __str__(self) -> str:
        """Return the differences in words."""
        sources = dict.fromkeys(s.operator for s in self.steps)
        return "; ".join(
            f"source {uid!r} has changed: {self._of(uid)}" for uid in sources
        )

    def _of(self, source: str) -> str:
        mine = [s for s in self.steps if s.operator == source]
        return ", ".join(f"{s.variable} {s.detail}" for s in mine)

    def _refusal(self, source: str) -> InvalidConfigError:
        first = next(
            s.variable
            for s in self.steps
            if s.operator == source and s.action is Action.REFUSE
        )
        return InvalidConfigError(
            f"source {source!r}",
            expected=f"the columns that epoch {self.epoch} read, more, or wider ones",
            found=self._of(source),
            hint="nothing was changed; give the code a column of that name and type"
            f" again (.with_column({first!r}, ...)), or, if nothing needs it any more,"
            f" say flow.retired_columns({source!r}, {first!r})",
        )


def plan_inputs(
    stored: Mapping[str, str],
    declared: Mapping[str, str],
    *,
    sources: Iterable[str],
    retired: frozenset[tuple[str, str]],
    epoch: int,
) -> InputChanges:
    """Compare columns by uid, as DDL, of an epoch and of the code (format §4.1).

    Args:
        stored: Of the epoch; empty if its writer did not say.
        declared: Of the code.
        sources: Which uids are sources; the others are steps of user code.
        retired: Columns that the user says are not needed, each with the uid of
            its source.
        epoch: The epoch.
    """
    mine = [uid for uid in sources if uid in stored and uid in declared]
    before = {uid: _types(ddl) for uid, ddl in stored.items()}
    now = {uid: _types(ddl) for uid, ddl in declared.items()}
    given = {u: before[u].keys() - now[u].keys() for u in before if u in now}
    steps = []
    for source in mine:
        for name in dict.fromkeys([*before[source], *now[source]]):
            old, new = before[source].get(name), now[source].get(name)
            users = [u for u in given if u not in mine and name in given[u]]
            is_retired = (source, name) in retired
            found = _step(old, new, users, is_retired=is_retired)
            if found is not None:
                action, detail = found
                steps.append(
                    Step(operator=source, variable=name, action=action, detail=detail)
                )
    return InputChanges(epoch=epoch, steps=tuple(steps))


def _step(
    old: Type | None, new: Type | None, users: list[str], *, is_retired: bool
) -> tuple[Action, str] | None:
    """Return what a column comes to; None: it is as it was."""
    if old is None or new is None:
        if old is None:
            return None if new is None else (Action.ADD, f"{new.ddl} is new")
        if users and not is_retired:
            names = ", ".join(map(repr, users))
            return Action.REFUSE, f"{old.ddl} is gone, which {names} was given"
        return Action.DROP, f"{old.ddl} is gone"
    if old == new:
        return None
    change = f"{old.ddl} is {new.ddl} now"
    if _holds_all(new, old):
        return Action.WIDEN, change
    return (Action.DROP if is_retired else Action.REFUSE), change


def _holds_all(new: Type | None, old: Type | None) -> bool:
    """Tell whether values have all they had, exactly; structs may have got fields."""
    if new is None or old is None:
        return False
    if new.kind == old.kind == "struct":
        now = {f.name: f.type for f in new.fields}
        return all(_holds_all(now.get(f.name), f.type) for f in old.fields)
    if new.kind == old.kind and old.element is not None:
        return new.key == old.key and _holds_all(new.element, old.element)
    return is_wider(new, old)


def _types(ddl: str) -> dict[str, Type]:
    """Return columns by name; there may be none whose type is known."""
    return {f.name: f.type for f in schema_of(ddl).fields} if ddl else {}
