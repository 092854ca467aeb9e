"""Declared state: what a ``Process`` remembers, written as class attributes.

A declaration is inert data. While a key is being processed the engine places the key's
values on the instance, so that ``self.spent += 1`` is a plain Python attribute at full
speed; lists and maps are reached through a handle (``handles``).

A ``Value`` that was never set reads as its default; ``del self.spent`` forgets it.
``None`` means "not set" and is never stored.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from msgspec import structs

from riverlock.core.errors import InvalidConfigError, InvalidStateSpecError, StateError
from riverlock.core.keywords import told_methods
from riverlock.core.suggestions import did_you_mean
from riverlock.core.times import duration_us
from riverlock.core.types import Type, TypeLike, type_of
from riverlock.core.values.json_values import to_json
from riverlock.snapshot.format.records import Variable
from riverlock.state.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from riverlock.state.handles import ListHandle, MapHandle, ReducingHandle

__all__ = ["List", "Map", "Reducing", "StateSpec", "Value", "specs_of"]

SCOPES = ("key", "group", "broadcast")
# Entry ids carry the variable's name and must fit LMDB's 511 bytes.
MAX_NAME = 64


class StateSpec:
    """Base of the declarations: a type, a scope and an optional time to live."""

    kind = ""

    def __init__(
        self,
        type: TypeLike,
        *,
        ttl: str | timedelta | None = None,
        scope: str = "key",
        formerly: str | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> None:
        """Check the declaration.

        Args:
            type: DDL text, a PySpark type, a Python type or a dataclass.
            ttl: Forget what was not written for this long (processing time).
            scope: ``key`` (default), ``group`` (one per key group, moves with it when
                the parallelism changes) or ``broadcast`` (one for all tasks, written
                only in ``on_broadcast``).
            formerly: The name that it has in older snapshots; you may delete this once
                an epoch of the new code is decided.
            migrate: Turns a stored value (element, map value) into one of this type, if
                older snapshots have another name or type for it.

        Raises:
            InvalidStateSpecError: The state cannot be stored.
        """
        self.name = ""
        self.type = self._type(type, "type")
        self.ttl_us = None if ttl is None else self._ttl(ttl)
        if scope not in SCOPES:
            raise InvalidStateSpecError(
                "scope=",
                expected=" or ".join(SCOPES),
                found=repr(scope),
                hint=did_you_mean(scope, SCOPES),
            )
        if ttl is not None and scope != "key":
            raise InvalidStateSpecError(
                "ttl=", expected="a key-scoped variable", found=f"scope={scope!r}"
            )
        self.scope = scope
        if migrate is not None and not callable(migrate):
            raise InvalidStateSpecError(
                "migrate=", expected="a function of one value", found=repr(migrate)
            )
        self.formerly, self.migrate = formerly, migrate

    def _ttl(self, ttl: str | timedelta) -> int:
        found = duration_us(ttl)
        if found <= 0:
            raise InvalidStateSpecError(
                f"rl.{self.__class__.__name__}(ttl=)",
                expected="a duration such as '1 hour'",
                found=repr(ttl),
            )
        return found

    def _type(self, spec: TypeLike, what: str) -> Type:
        try:
            return type_of(spec)
        except InvalidConfigError as error:
            raise InvalidStateSpecError(
                f"rl.{self.__class__.__name__}({what}=)",
                expected=error.expected,
                found=error.found,
                hint=error.hint,
            ) from error

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the attribute's name as the variable's name."""
        # Not looked at here: Pythons before 3.12 wrap what is raised by now.
        self.name = name

    @property
    def variable(self) -> Variable:
        """The record that manifests carry."""
        return Variable(
            kind=self.kind, type=self.type.ddl, scope=self.scope, ttl_us=self.ttl_us
        )

    @property
    def is_packed(self) -> bool:
        """Whether it shares the key's one row of values."""
        return self.kind in ("value", "reducing") and self.ttl_us is None

    def _outside(self) -> StateError:
        return StateError(
            f"state {self.name!r} can only be used while a key is being processed",
            hint="test a Process with riverlock.testing.harness",
        )

    if TYPE_CHECKING:  # what type checkers see; the engine provides it at run time

        def __get__(self, instance: object, owner: type) -> Any: ...
        def __set__(self, instance: object, value: Any) -> None: ...
        def __delete__(self, instance: object) -> None: ...


@told_methods
class Value(StateSpec):
    """One value per key: ``self.spent``, ``self.spent = x``, ``del self.spent``."""

    kind = "value"

    def __init__(  # noqa: PLR0913 - keywords, each with a default
        self,
        type: TypeLike,
        *,
        default: Any = None,
        ttl: str | timedelta | None = None,
        scope: str = "key",
        formerly: str | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> None:
        """Declare a value; ``default`` is its value before it is set."""
        super().__init__(type, ttl=ttl, scope=scope, formerly=formerly, migrate=migrate)
        codec = codec_of(self.type)
        try:
            # Reading the default gives what reading it back from the store would.
            self.default = codec.checked(default)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise InvalidStateSpecError(
                "rl.Value(default=)",
                expected=f"{self.type.ddl} ({error})",
                found=repr(default),
            ) from error
        self.is_copied = codec.is_mutable and default is not None

    @property
    def variable(self) -> Variable:
        """The record that manifests carry, with the default."""
        default, out = self.default, codec_of(self.type).to_arrow
        if default is not None and out is not None:
            default = out(default)
        return structs.replace(super().variable, default=to_json(self.type, default))

    def fresh(self) -> Any:
        """Return the default; a copy, if it could be changed in place."""
        return copy.deepcopy(self.default) if self.is_copied else self.default

    if not TYPE_CHECKING:

        def __get__(self, instance: object, owner: type) -> Any:
            """Return the default: the instance has no such attribute, it is unset."""
            if instance is None:
                return self
            if not self.is_copied:
                return self.default
            # A mutable default is copied onto the instance: changing it in place
            # is a change of this key's state, not of the default.
            fresh = self.fresh()
            instance.__dict__[self.name] = fresh
            return fresh


class _Handled(StateSpec):
    """State that is reached through a handle."""

    if not TYPE_CHECKING:

        def __get__(self, instance: object, owner: type) -> Any:
            if instance is None:
                return self
            raise self._outside()


@told_methods
class List(_Handled):
    """A list per key; appending does not read it."""

    kind = "list"

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: type) -> ListHandle[Any]: ...


@told_methods
class Map(_Handled):
    """A dictionary per key; touching one entry costs one entry."""

    kind = "map"

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: type) -> MapHandle[Any]: ...

    def __init__(  # noqa: PLR0913 - keywords, each with a default
        self,
        key: TypeLike,
        value: TypeLike,
        *,
        ttl: str | timedelta | None = None,
        scope: str = "key",
        formerly: str | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> None:
        """Declare a map from ``key`` to ``value``; entries expire one by one."""
        super().__init__(
            value, ttl=ttl, scope=scope, formerly=formerly, migrate=migrate
        )
        self.key_type = self._type(key, "key")
        if self.key_type.kind in ("array", "map", "struct"):
            raise InvalidStateSpecError(
                "rl.Map(key=)", expected="a simple type", found=self.key_type.ddl
            )

    @property
    def variable(self) -> Variable:
        """The record that manifests carry, with the key's type."""
        return Variable(
            kind=self.kind,
            type=self.type.ddl,
            key=self.key_type.ddl,
            scope=self.scope,
            ttl_us=self.ttl_us,
        )


@told_methods
class Reducing(_Handled):
    """A value folded by a function: ``self.best.add(x)``, ``self.best.value``."""

    kind = "reducing"

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: type) -> ReducingHandle: ...

    def __init__(  # noqa: PLR0913 - keywords, each with a default
        self,
        type: TypeLike,
        fn: Callable[[Any, Any], Any],
        *,
        ttl: str | timedelta | None = None,
        scope: str = "key",
        formerly: str | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> None:
        """Declare a fold; ``fn(old, new)`` returns the new value."""
        super().__init__(type, ttl=ttl, scope=scope, formerly=formerly, migrate=migrate)
        if not callable(fn):
            raise InvalidStateSpecError(
                "rl.Reducing(fn=)", expected="a function of two values", found=repr(fn)
            )
        self.fn = fn


def specs_of(owner: type) -> dict[str, StateSpec]:
    """Return the declarations of a class in a stable order, base classes first.

    Raises:
        InvalidStateSpecError: One has a name that cannot be stored.
    """
    found: dict[str, StateSpec] = {}
    for cls in reversed(owner.__mro__):
        found |= {n: a for n, a in vars(cls).items() if isinstance(a, StateSpec)}
    for name in found:
        if len(name.encode()) > MAX_NAME or name.startswith("_"):
            raise InvalidStateSpecError(
                f"state variable {name!r} of {owner.__name__}",
                expected=f"a public name of at most {MAX_NAME} bytes",
                found=repr(name),
            )
    return found
