"""Methods that are elsewhere, or that PySpark calls otherwise: the error says so."""

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
# What PySpark has under these names, in lower case, and what to write here.
_PYSPARK = {
    "Flow": {"readstream": 'flow.read(rl.sources.files("in/", ...))'},
    "Stream": {
        **dict.fromkeys(
            ("groupby", "groupbykey", "keyby", "partitionby"), ".key_by(...)"
        ),
        **dict.fromkeys(("distinct", "dropduplicates"), ".key_by(...).deduplicate()"),
        **dict.fromkeys(
            ("drop", "withcolumnrenamed"), ".select(...) with the columns to keep"
        ),
        **dict.fromkeys(
            ("foreach", "foreachbatch"), ".write(rl.sinks.for_each_epoch(function))"
        ),
        "withwatermark": '.event_time("at", delay="10 minutes")',
        "writestream": '.write(rl.sinks.files("out/", ...))',
    },
}


class Helpful:
    """What users build with: it says where to find methods that it does not have."""

    _kinds: ClassVar[dict[str, type[Helpful]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Remember a kind of stream by its name."""
        super().__init_subclass__(**options)
        Helpful._kinds[cls.__name__] = cls

    # Unseen by checkers of types, which else would take any name for a method.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say where to find a method that is not here."""
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            written = _PYSPARK.get(type(self).__name__, {}).get(name.lower())
            if written:
                raise AttributeError(f"{text}; write {written}", name=name, obj=self)
            for kind, advice in _ADVICE.get(type(self).__name__, {}).items():
                if not name.startswith("_") and hasattr(self._kinds.get(kind), name):
                    text += f", but {kind} has: {advice.format(name=name)}"
                    break
            else:
                near = did_you_mean(name, (n for n in dir(type(self)) if n[0] != "_"))
                text += f"; {near}" if near else ""
            raise AttributeError(text, name=name, obj=self)
