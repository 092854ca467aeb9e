"""Parameters of operators as the store knows them: what exists, and how it changes.

Pure: needs neither the code that declares them nor a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from riverlock.core.errors import InvalidConfigError
from riverlock.core.values.parameter_kinds import parsed, stored
from riverlock.snapshot.format.records import Parameter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.snapshot.format.records import Change, OperatorState

__all__ = [
    "Parameters",
    "carried",
    "changed",
    "check_change",
    "fits",
    "misfits",
    "parameters_of",
    "parsed_value",
    "renamed",
    "replayed",
    "with_changes",
]

_HINT = "nothing was changed; see what exists: riverlock set STORE"
# By operator and name.
Parameters: TypeAlias = Mapping[str, Mapping[str, Parameter]]


def parameters_of(operators: Mapping[str, OperatorState]) -> Parameters:
    """Return the parameters of the operators that have any."""
    return {u: s.parameters for u, s in operators.items() if s.parameters}


def fits(parameter: Parameter, value: object) -> bool:
    """Tell whether a parameter can have a value."""
    try:
        stored(parameter.type, value)
    except ValueError:
        return False
    return True


def check_change(known: Parameters, change: Change) -> Change:
    """Return a change with its values as they are stored.

    Raises:
        InvalidConfigError: There is no such operator or parameter, or a value is not of
            its kind.
    """
    for uid, names in change.defaults.items():
        for name in names:
            _declared(known, uid, name)
    values = {
        uid: {name: _stored(known, uid, name, value) for name, value in mine.items()}
        for uid, mine in change.values.items()
    }
    return msgspec.structs.replace(change, values=values)


def _declared(known: Parameters, uid: str, name: str) -> Parameter:
    if uid not in known:
        raise InvalidConfigError(
            f"operator {uid!r}",
            expected=f"one with parameters: {', '.join(known) or 'there is none'}",
            found=uid,
            hint=_HINT,
        )
    if name not in known[uid]:
        raise InvalidConfigError(
            f"parameter {uid}.{name}",
            expected=f"one of {', '.join(known[uid])}",
            found=name,
            hint=_HINT,
        )
    return known[uid][name]


def _stored(known: Parameters, uid: str, name: str, value: object) -> Any:
    kind = _declared(known, uid, name).type
    try:
        return stored(kind, value)
    except ValueError as error:
        raise _of_another_kind(uid, name, kind, value, error) from error


def parsed_value(known: Parameters, uid: str, name: str, text: str) -> Any:
    """Return the stored form of a value that was written as text.

    Raises:
        InvalidConfigError: As ``check_change`` does.
    """
    kind = _declared(known, uid, name).type
    try:
        return parsed(kind, text)
    except ValueError as error:
        raise _of_another_kind(uid, name, kind, text, error) from error


def _of_another_kind(
    uid: str, name: str, kind: str, value: object, error: ValueError
) -> InvalidConfigError:
    return InvalidConfigError(
        f"parameter {uid}.{name}",
        expected=f"a value of kind {kind} ({error})",
        found=repr(value),
        hint=_HINT,
    )


def renamed(known: Parameters, change: Change, names: Mapping[str, str]) -> Change:
    """Return a change of operators that have other uids by now: old to new."""

    def now(uid: str) -> str:
        return uid if uid in known else names.get(uid, uid)

    return msgspec.structs.replace(
        change,
        values={now(uid): mine for uid, mine in change.values.items()},
        defaults={now(uid): mine for uid, mine in change.defaults.items()},
    )


def misfits(known: Parameters, change: Change) -> list[str]:
    """Return the parts of a change that are ignored: they were asked of other code."""
    return [
        f"{uid}.{name}={value!r}"
        for uid, values in change.values.items()
        for name, value in values.items()
        if name not in known.get(uid, {}) or not fits(known[uid][name], value)
    ]


def carried(
    declared: Mapping[str, Parameter], before: Mapping[str, Parameter]
) -> dict[str, Parameter]:
    """Return declared parameters with what was set before.

    A value that is not of the declared kind is left out: such code is not started.
    """
    found = dict(declared)
    for name, old in before.items():
        if name in found and old.value is not None and fits(found[name], old.value):
            found[name] = _set(found[name], old.value, since=old.since)
    return found


def replayed(
    declared: Mapping[str, Parameter], recorded: Mapping[str, Parameter]
) -> dict[str, Parameter]:
    """Return declared parameters with what was in force in an epoch, set or not."""
    found = dict(declared)
    for name, old in recorded.items():
        if name in found and fits(found[name], old.in_force):
            found[name] = _set(found[name], old.in_force, since=old.since)
    return found


def changed(parameters: Parameters, change: Change, *, epoch: int) -> Parameters:
    """Return parameters after a change that an epoch takes up.

    What the code does not (or no longer) declare is ignored.
    """
    found = {uid: dict(mine) for uid, mine in parameters.items()}
    for uid, values in change.values.items():
        for name, value in values.items():
            old = found.get(uid, {}).get(name)
            if old is not None and fits(old, value):
                new = _set(old, value, since=epoch)
                found[uid][name] = old if _same(new.value, old.value) else new
    for uid, names in change.defaults.items():
        for name in names:
            old = found.get(uid, {}).get(name)
            if old is not None:
                unset = msgspec.structs.replace(old, value=None, since=None)
                found[uid][name] = unset
    return found


def _set(parameter: Parameter, value: Any, *, since: int | None) -> Parameter:
    value = stored(parameter.type, value)
    return msgspec.structs.replace(parameter, value=value, since=since)


def _same(a: Any, b: Any) -> bool:
    """Compare as JSON: Python takes 1 for True."""
    return msgspec.json.encode(a) == msgspec.json.encode(b)


def with_changes(
    operators: Mapping[str, OperatorState], changes: Iterable[Change], *, epoch: int
) -> dict[str, OperatorState]:
    """Return operators as they are once changes are taken up."""
    found = parameters_of(operators)
    for change in changes:
        found = changed(found, change, epoch=epoch)
    return {
        uid: msgspec.structs.replace(state, parameters=dict(found.get(uid, {})))
        for uid, state in operators.items()
    }
