"""Keywords that a function does not have, told in our words, with the nearest one."""

from __future__ import annotations

import difflib
import inspect
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from riverlock.core.errors import InvalidConfigError
from riverlock.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["refuse_near", "told_keywords", "told_methods"]

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)
# How near an option of somebody else may be to one of ours: dateFormat is not format.
_NEAR = 0.85


def told_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Let a public function refuse arguments that it does not have as we do.

    Raises:
        InvalidConfigError: By the function: it has no such keyword, or lacks one.
    """
    return _telling(function, f"{function.__name__}()")


def told_methods(public: C) -> C:
    """Let a public class, and each of its public methods, do so too.

    Inherited methods are among them: a user sees the class, not where a method stands.
    """
    for name in dir(public):
        method = inspect.getattr_static(public, name)
        if name == "__init__":
            setattr(public, name, _telling(method, f"rl.{public.__name__}()"))
        elif isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(public, name, told_keywords(method))
    return public


def _telling(function: Callable[P, R], what: str) -> Callable[P, R]:
    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            signature = inspect.signature(function)
            try:
                signature.bind(*args, **kwargs)
            except TypeError:
                raise _refusal(what, signature, len(args), kwargs) from error
            raise  # of what the function did

    return call


def refuse_near(what: str, options: Iterable[str], ours: Iterable[str]) -> None:
    """Refuse options for somebody else that are misspelt ones of ours.

    Raises:
        InvalidConfigError: There is one.
    """
    known = {name.replace("_", ""): name for name in ours}
    for option in options:
        plain = option.lower().replace("_", "")
        near = difflib.get_close_matches(plain, known, n=1, cutoff=_NEAR)
        if near:
            raise InvalidConfigError(
                what,
                expected=f"one of the keywords {', '.join(known.values())}, or an"
                " option of Spark's reader",
                found=f"{option}=",
                hint=f"did you mean {known[near[0]]!r}?",
            )


def _refusal(
    what: str, signature: inspect.Signature, count: int, given: Mapping[str, object]
) -> InvalidConfigError:
    parameters = dict(signature.parameters)
    if parameters.pop("self", None):
        count -= 1
    unknown = next((n for n in given if n not in parameters), None)
    if unknown is not None:
        return InvalidConfigError(
            what,
            expected=f"one of the keywords {', '.join(parameters)}"
            if parameters
            else "no arguments",
            found=f"{unknown}=",
            hint=did_you_mean(unknown, parameters),
        )
    places = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if count > len(places):
        names = ", ".join(p.name for p in places)
        return InvalidConfigError(
            what,
            expected=f"{names or 'nothing'} by position, all else by keyword",
            found=f"{count} arguments by position",
        )
    taken = {p.name for p in places[:count]} | set(given)
    missing = [
        p.name
        for p in parameters.values()
        if p.default is p.empty and p.name not in taken
    ]
    return InvalidConfigError(what, expected=f"{', '.join(missing)}=", found="none")
