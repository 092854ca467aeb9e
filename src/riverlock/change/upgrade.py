"""What happens to stored state when the code that declares it has changed.

Planned, and refused, before anything runs; a plan is a list of steps that people can
read. Renamed and dropped operators, and added, dropped and widened variables cost
nothing: files are read by name. Variables that are renamed or migrated are rewritten
once (``migration``), into files that the first new epoch refers to: until it is
decided, the store is as it was. State whose files still have a dropped variable is
rewritten too, if a new variable has its name: it would begin with the values of the old
one.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from riverlock.change.migration import Migration
from riverlock.change.widening import is_wider
from riverlock.change.window_words import changed_windows
from riverlock.core.errors import InvalidConfigError, StateSchemaError
from riverlock.core.types import type_of
from riverlock.snapshot.format.stored_parameters import fits
from riverlock.state.keys import group_range

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import (
        Manifest,
        OperatorState,
        Parameter,
        Variable,
    )
    from riverlock.state.layout import StateLayout
    from riverlock.state.spec import StateSpec

__all__ = ["Action", "Declared", "Step", "Upgrade", "plan_upgrade"]


class Action(StrEnum):
    """What happens to an operator or a variable."""

    KEEP = "kept"
    ADD = "added"
    DROP = "dropped"
    WIDEN = "widened"
    RENAME = "renamed"
    MIGRATE = "migrated"
    REFUSE = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of the report.

    Attributes:
        operator: Its uid in the code, or in the store if the code has none.
        variable: The state variable; None: the operator itself.
        action: What happens.
        detail: From what to what, or why not.
    """

    operator: str
    variable: str | None
    action: Action
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The state that an operator declares."""

    layout: StateLayout
    windows: str | None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """What must happen before a snapshot can be continued.

    Attributes:
        steps: The report.
        refusals: What forbids it.
        renamed: Uids in the store to uids in the code.
        retired: Uids in the store whose state is left out.
        moves: Variables to be rewritten, by operator: stored name to declaration. An
            operator without any is rewritten to drop variables.
    """

    steps: tuple[Step, ...]
    refusals: tuple[StateSchemaError, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    retired: frozenset[str] = frozenset()
    moves: Mapping[str, Mapping[str, StateSpec]] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse what cannot be done.

        Raises:
            StateSchemaError: Nothing was touched.
        """
        if self.refusals:
            raise self.refusals[0]

    @property
    def changes_nothing(self) -> bool:
        """Whether a snapshot can be used as it is."""
        return not (self.renamed or self.retired or self.moves)

    def adopted(
        self,
        newest: Manifest,
        rewritten: Mapping[str, OperatorState],
        token: str,
    ) -> Manifest:
        """Return the snapshot as the code sees it.

        Args:
            newest: What is stored.
            rewritten: State of the operators that have moves, by uid in the code.
            token: Of the run: its copies of this state are its own.
        """
        if self.changes_nothing:
            return newest
        operators = {
            self.renamed.get(uid, uid): self._since(uid, state, newest.epoch)
            for uid, state in newest.operators.items()
            if uid not in self.retired
        }
        return msgspec.structs.replace(
            newest,
            operators={**operators, **rewritten},
            history=(*newest.history, (newest.epoch, token)),
        )

    def rewritten(
        self, catalog: Catalog, newest: Manifest, declared: Mapping[str, StateLayout]
    ) -> dict[str, OperatorState]:
        """Rewrite the state of operators that have moves, beside the stored one.

        Raises:
            RiverlockError: What went wrong in a migration function or the storage.
        """
        before = {new: old for old, new in self.renamed.items()}
        count = newest.parallelism
        pieces = [group_range(t, count, newest.key_groups) for t in range(count)]
        attempt = f"m-{uuid.uuid4().hex[:12]}"
        made = {
            uid: Migration(uid, declared[uid], moves).rewrite(
                catalog.storage,
                catalog.paths,
                newest.operators[before.get(uid, uid)],
                epoch=newest.epoch,
                now_us=newest.now_us,
                pieces=pieces,
                attempt=attempt,
            )
            for uid, moves in self.moves.items()
        }
        return {
            uid: msgspec.structs.replace(state, was=before.get(uid, uid))
            for uid, state in made.items()
        }

    def _since(self, uid: str, state: OperatorState, epoch: int) -> OperatorState:
        """Mark a renamed operator: an older copy of that name is not its own."""
        if uid not in self.renamed:
            return state
        return msgspec.structs.replace(state, since=epoch, was=uid)


def plan_upgrade(
    stored: Mapping[str, OperatorState],
    declared: Mapping[str, Declared],
    *,
    renamed: Mapping[str, str],
    retired: frozenset[str],
    columns: Callable[[OperatorState], Collection[str]],
) -> Upgrade:
    """Compare stored and declared state.

    Args:
        stored: The operators of a snapshot.
        declared: The operators of the code.
        renamed: The renames that the user declares: old uid to new.
        retired: The uids that the user declares gone for good.
        columns: Returns for which variables, declared or dropped, files of a state have
            columns. Called only if there is a variable that the state does not have.

    Raises:
        InvalidConfigError: What the user declares makes no sense.
    """
    # What was done by an earlier start needs no more doing.
    moved = {old: new for old, new in renamed.items() if old in stored}
    for old, new in moved.items():
        _check_renamed(old, new, stored, declared)
    report = _Report(columns)
    for uid, mine in declared.items():
        before = next((old for old, new in moved.items() if new == uid), uid)
        report.operator(uid, before, stored.get(before), mine)
    for uid, state in stored.items():
        if uid not in declared and uid not in moved:
            report.orphan(uid, state, is_retired=uid in retired)
    return Upgrade(
        steps=tuple(report.steps),
        refusals=tuple(report.refusals),
        renamed=moved,
        retired=frozenset(u for u in retired if u in stored and u not in declared),
        moves=report.moves,
    )


def _check_renamed(
    old: str,
    new: str,
    stored: Mapping[str, OperatorState],
    declared: Mapping[str, Declared],
) -> None:
    if new not in declared:
        raise InvalidConfigError(
            f"flow.renamed({{{old!r}: {new!r}}})",
            expected=f"an operator with uid {new!r}",
            found=f"operators {', '.join(declared) or 'none'}",
        )
    if old in declared or new in stored:
        taken = old if old in declared else new
        where = "the code" if old in declared else "the store"
        raise InvalidConfigError(
            f"flow.renamed({{{old!r}: {new!r}}})",
            expected=f"no operator {taken!r} in {where}",
            found="one that has state of its own",
        )


class _Report:
    def __init__(self, columns: Callable[[OperatorState], Collection[str]]) -> None:
        self._columns = columns
        self.steps: list[Step] = []
        self.refusals: list[StateSchemaError] = []
        self.moves: dict[str, dict[str, StateSpec]] = {}

    def operator(
        self, uid: str, before: str, state: OperatorState | None, mine: Declared
    ) -> None:
        if state is None:
            self._say(uid, None, Action.ADD, "begins without state")
            return
        action = Action.KEEP if before == uid else Action.RENAME
        self._say(uid, None, action, "" if before == uid else f"from {before}")
        keys = mine.layout.keys.ddl
        if state.keys != keys:
            self._refuse(uid, None, expected=f"keys {keys}", found=f"keys {state.keys}")
        if state.windows != mine.windows:
            changed = changed_windows(mine.windows, state.windows)
            self._refuse(uid, None, *changed)
        used = set()
        names = {n: self._stored_name(s, state) for n, s in mine.layout.specs.items()}
        dropped = self._columns(state) if None in names.values() else ()
        for name, spec in mine.layout.specs.items():
            found = names[name]
            if found is None:
                self._added(uid, spec, is_used=name in dropped)
            else:
                used.add(found)
                self._variable(uid, spec, found, state.variables[found])
        for name, old in state.variables.items():
            if name not in used:
                self._say(uid, name, Action.DROP, _described(old))
        self._parameters(uid, state.parameters, mine.parameters)

    def _added(self, uid: str, spec: StateSpec, *, is_used: bool) -> None:
        what = _described(spec.variable)
        if is_used:
            self.moves.setdefault(uid, {})
            what += "; values of a dropped variable of that name are left behind"
        self._say(uid, spec.name, Action.ADD, what)

    def _parameters(
        self, uid: str, stored: Mapping[str, Parameter], mine: Mapping[str, Parameter]
    ) -> None:
        """Report what happens to values that were set: they override the code."""
        for name, old in stored.items():
            if name not in mine:
                lost = (
                    "" if old.value is None else f"; {_shown(old.value)} is forgotten"
                )
                self._say(uid, name, Action.DROP, f"parameter of kind {old.type}{lost}")
        for name, new in mine.items():
            said = f"parameter, {_shown(new.default)}"
            value = stored[name].value if name in stored else None
            if value is None:
                action = Action.KEEP if name in stored else Action.ADD
                self._say(uid, name, action, f"{said} as the code says")
            elif fits(new, value):
                at = f", set in epoch {stored[name].since}"
                what = f"parameter, {_shown(value)}{at}; the code says"
                self._say(uid, name, Action.KEEP, f"{what} {_shown(new.default)}")
            else:
                self._refuse(
                    uid,
                    name,
                    expected=f"parameter {name} of kind {new.type}",
                    found=f"{_shown(value)}, which was set",
                    hint=f"go back to the default: riverlock set STORE {uid}.{name}"
                    " --default",
                )

    @staticmethod
    def _stored_name(spec: StateSpec, state: OperatorState) -> str | None:
        if spec.name in state.variables:
            return spec.name
        return spec.formerly if spec.formerly in state.variables else None

    def _variable(self, uid: str, spec: StateSpec, name: str, old: Variable) -> None:
        new = spec.variable
        change = f"{_described(old)} -> {_described(new)}"
        if _fixed(old) != _fixed(new):
            self._refuse(uid, spec.name, _named(spec.name, new), _named(name, old))
        elif spec.migrate is not None and (name, old.type) != (spec.name, new.type):
            # Also if stored values could be read as they are: they mean something else.
            if new.key == old.key:
                self._move(uid, spec, name, Action.MIGRATE, f"from {name}; {change}")
            else:
                self._refuse(uid, spec.name, _named(spec.name, new), _named(name, old))
        elif not _fits(new, old):
            self._refuse(uid, spec.name, _named(spec.name, new), _named(name, old))
        elif name != spec.name:
            self._move(uid, spec, name, Action.RENAME, f"from {name}; {change}")
        else:
            action = Action.KEEP if new.type == old.type else Action.WIDEN
            is_same = _described(new) == _described(old)
            self._say(uid, name, action, "" if is_same else change)

    def _move(
        self, uid: str, spec: StateSpec, name: str, action: Action, detail: str
    ) -> None:
        self.moves.setdefault(uid, {})[name] = spec
        self._say(uid, spec.name, action, detail)

    def orphan(self, uid: str, state: OperatorState, *, is_retired: bool) -> None:
        what = f"{state.entries} entries of state"
        if state.variables:
            what += f" ({', '.join(state.variables)})"
        if is_retired:
            self._say(uid, None, Action.DROP, f"{what}; earlier epochs keep them")
        elif not state.files:
            self._say(uid, None, Action.DROP, "it had no state")
        else:
            self._refuse(
                uid,
                None,
                expected="the code has no such operator",
                found=what,
                hint=f"if it has another uid now: flow.renamed({{{uid!r}: 'new'}});"
                f" if it is gone for good: flow.retired({uid!r})",
            )

    def _say(
        self, operator: str, variable: str | None, action: Action, detail: str
    ) -> None:
        self.steps.append(
            Step(operator=operator, variable=variable, action=action, detail=detail)
        )

    def _refuse(
        self,
        operator: str,
        variable: str | None,
        expected: str,
        found: str,
        hint: str = "",
    ) -> None:
        detail = f"{expected}, was {found}"
        self._say(operator, variable, Action.REFUSE, detail)
        self.refusals.append(
            StateSchemaError(
                operator=operator, expected=expected, found=found, hint=hint
            )
        )


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _fits(new: Variable, old: Variable) -> bool:
    """Tell whether stored values can be read as declared."""
    if old.key is not None and new.key is not None:
        # Ids are made of the keys: integers of all widths are written alike.
        if not is_wider(type_of(new.key), type_of(old.key)):
            return False
        if {new.key, old.key} & {"float", "double"} and new.key != old.key:
            return False
    return is_wider(type_of(new.type), type_of(old.type))


def _fixed(variable: Variable) -> tuple[object, ...]:
    """Return what no migration changes.

    A time to live may change, but not whether there is one: entries that expire are
    stored apart from those that do not.
    """
    return variable.kind, variable.scope, variable.ttl_us is not None


def _described(variable: Variable) -> str:
    kind = variable.type
    if variable.key is not None:
        kind = f"{variable.key} to {kind}"
    expiry = "" if variable.ttl_us is None else " with a ttl"
    return f"{variable.scope} {variable.kind} of {kind}{expiry}"


def _named(name: str, variable: Variable) -> str:
    return f"{name}: {_described(variable)}"
