"""Methods that another kind of stream has: the error says where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from riverlock.core.suggestions import did_you_mean

__all__ = ["Helpful"]

# By kind of stream: which others may have a method, and what to write then.
_ADVICE = {
    "Stream": {
        "KeyedStream": ".key_by(...).{name}(...)",
        "WindowedStream": ".window(...).{name}(...)",
    },
    "KeyedStream": {"Stream": "call .{name} before .key_by(...)"},
    "WindowedStream": {
        "Stream": ".agg(...), .count(), .reduce(...) and .apply(...) give one"
    },
}


class Helpful:
    """A kind of stream that says where to find methods that it does not have."""

    _kinds: ClassVar[dict[str, type[Helpful]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Remember a kind of stream by its name."""
        super().__init_subclass__(**options)
        Helpful._kinds[cls.__name__] = cls

    # Unseen by checkers of types, which else would take any name for a method.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say where to find a method that this kind of stream does not have."""
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            for kind, advice in _ADVICE.get(type(self).__name__, {}).items():
                if not name.startswith("_") and hasattr(self._kinds.get(kind), name):
                    text += f", but {kind} has: {advice.format(name=name)}"
                    break
            else:
                near = did_you_mean(name, (n for n in dir(type(self)) if n[0] != "_"))
                text += f"; {near}" if near else ""
            raise AttributeError(text, name=name, obj=self)
