"""A user's ``on_event``, written into the loop over the records of a key.

Half of the cost of a record is a call, an object that holds its columns, and attributes
that are read and written. An ``on_event`` that computes with values and columns needs
none of these: its statements become statements of our own loop (``translation``).

They can be run twice without harm, since nothing they do is seen outside the loop. So
whatever is unusual, such as an error, a timer in a rare branch or a value that is not
set, ends the attempt for a key, and the key is processed again by calling the method:
users' errors and debuggers always see the method itself.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from dataclasses import dataclass
from functools import lru_cache, partial
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from riverlock.core.values.record import column_attributes
from riverlock.operators.keyed.loop.inference import kept_types
from riverlock.operators.keyed.loop.parsing import PARSING
from riverlock.operators.keyed.loop.translation import (
    RAISE,
    Column,
    Met,
    Shape,
    Translation,
    UnknownError,
    Value,
    always_assigned,
    parsed,
)
from riverlock.state import spec
from riverlock.state.codec import codec_of
from riverlock.state.columns.python_rows import Records, column_values

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from riverlock.core.types import Schema
    from riverlock.operators.task_input import KeyedInput
    from riverlock.program.process import KeyedLogic
    from riverlock.state.layout import StateLayout

__all__ = ["Around", "inlined", "source_of"]

# Values that nothing can change: what was read once need not be read again.
_SCALARS: Final = (int, float, str, bool, bytes, type(None))
_COLUMN_TYPES: Final = {
    **dict.fromkeys(("byte", "short", "int", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    "string": str,
    "boolean": bool,
}
# If more keys than these, and one in eight, take calls, attempts are not worth it.
_FEW: Final = 64
_UNSET: Final = object()

_LOOP: Final = """
def visits(payloads, bounds, keys, columns, times):
    _rl_rows = []
    _rl_begin = _rl_missed = 0
    {columns}
    for _rl_payload, _rl_end, _rl_key in zip(payloads, bounds, keys, strict=True):
        _rl_row = None
        {key}
        {mark}
        try:
            if _rl_payload is None:
                {fresh}
            else:
                {values} = _rl_decode(_rl_payload)
                {known}
            {read}
            for {record} in {records}:
                _rl_body
            _rl_row = {left}
        except Exception:
            pass
        if _rl_row is None:
            {rewind}
            _rl_missed += 1
            if _rl_missed > {few} + (len(_rl_rows) >> 3):
                break
            _rl_rows.append(_rl_by_call(len(_rl_rows)))
            if _rl_is_stale():
                break
        else:
            _rl_rows.append(_rl_row)
        _rl_begin = _rl_end
    return _rl_rows
"""


@dataclass(frozen=True, kw_only=True)
class Around:
    """What an operator does with rows, and with keys that take calls."""

    # Where rows go with their times, and the width of tuples that need nothing else.
    main: list[tuple[Any, int | None]]
    width: int | None
    # Take a row, or what a method returned; with the time of the record.
    give: Callable[[Any, int | None], None]
    give_all: Callable[[Any, int | None], None]
    # Visit the key at a place by calling the method; returns what it was left with.
    by_call: Callable[[int], tuple[Any, ...]]


def source_of(process: KeyedLogic[Any]) -> str | None:
    """Return the text of a process's ``on_event``, on the driver, which may have it."""
    try:
        return textwrap.dedent(inspect.getsource(type(process).on_event))
    except (OSError, TypeError):
        return None


def inlined(  # noqa: PLR0913 - what a loop is made of
    source: str | None,
    user: Any,
    layout: StateLayout,
    schema: Schema,
    data: KeyedInput,
    around: Around,
) -> list[tuple[Any, ...]]:
    """Visit keys as far as a loop goes; return what each was left with.

    Args:
        source: The text of ``on_event``, if known.
        user: The live process.
        layout: Its state.
        schema: The columns of its records.
        data: The input.
        around: What is done with rows, and with keys that take calls.
    """
    row, table, function = layout.rows["key"], data.table, _function_of(user)
    if source is None or function is None or table is None:
        return []
    is_usual = type(data.records) is Records and row.names
    if not is_usual or row.objects or row.copied or _is_debugged():
        return []
    if not all(_is_as_declared(user, each) for each in row.specs):
        return []
    values = tuple(map(_value, row.specs))
    columns, has_times = _readable(schema, table), data.times is not None
    is_single = len(layout.keys.fields) == 1
    shape = Shape(values, columns, has_times, around.width, is_single)
    text = _written(function.__code__, source, shape)
    known = None if text is None else text.constants_of(user, function.__globals__)
    if text is None or known is None:
        return []
    space = {
        **known,
        **{f"_rl_default_{s.name}": getattr(s, "default", None) for s in row.specs},
        **{
            f"_rl_settle_{name}": partial(_settled, codec.normalise)
            for name, codec in zip(row.names, row.codecs, strict=True)
        },
        "_rl_decode": row.decode,
        "_rl_unset": _UNSET,
        "_rl_unusual": UnknownError,
        "_rl_main": around.main,
        "_rl_give": around.give,
        "_rl_give_all": around.give_all,
        "_rl_by_call": around.by_call,
        "_rl_is_stale": lambda: text.is_stale(known, user, function.__globals__),
    }
    exec(text.code, space)  # noqa: S102 - the user's own code, and ours around it
    types = {f.name: f.type for f in schema.fields}
    lists = [column_values(table[n], types[n]) for n in text.columns]
    visits: Callable[..., list[tuple[Any, ...]]] = space["visits"]
    return visits(data.payloads, data.bounds[1:], data.keys, lists, data.times)


def _is_debugged() -> bool:
    """Whether somebody wants to stop in the method."""
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    is_watched = monitoring and monitoring.get_tool(monitoring.DEBUGGER_ID)
    return sys.gettrace() is not None or bool(is_watched)


def _function_of(user: Any) -> FunctionType | None:
    """Return the method that handles records, if attributes of its object are plain."""
    kind, method = type(user), user.on_event
    if type(method) is not MethodType or method.__self__ is not user:
        return None
    own = [vars(c) for c in kind.__mro__ if c is not object]
    hooks = ("__getattr__", "__getattribute__", "__setattr__")
    is_plain = not any(hook in names for names in own for hook in hooks)
    function = method.__func__
    return function if is_plain and type(function) is FunctionType else None


def _is_as_declared(user: Any, declared: spec.StateSpec) -> bool:
    """Whether no class of the user's says what reading a value gives."""
    if type(declared) is not spec.Value:
        return type(declared) is spec.Reducing
    return inspect.getattr_static(type(user), declared.name, None) is declared


def _value(declared: spec.StateSpec) -> Value:
    plain = codec_of(declared.type).plain
    if not isinstance(declared, spec.Value):
        return Value(declared.name, None, has_default=False)
    return Value(declared.name, plain, has_default=type(declared.default) is plain)


def _readable(schema: Schema, table: pa.Table) -> tuple[Column, ...]:
    """Return the columns whose values are those that a record shows."""
    attributes = column_attributes(schema)
    return tuple(
        Column(attributes[f.name], f.name, None if table[f.name].null_count else kind)
        for f in schema.fields
        if (kind := _COLUMN_TYPES.get(f.type.kind)) is not None
    )


def _settled(normalise: Callable[[Any], Any], value: Any) -> Any:
    """Bring a value to its type; one that is not set any more is for the method."""
    if value is None:
        raise UnknownError
    return normalise(value)


@dataclass(frozen=True)
class _Text:
    """A loop, written and compiled."""

    code: CodeType
    # Names of columns, in the order in which the loop takes them.
    columns: tuple[str, ...]
    attributes: tuple[str, ...]
    names: tuple[str, ...]
    functions: tuple[str, ...]

    def constants_of(self, user: Any, space: dict[str, Any]) -> dict[str, Any] | None:
        """Return what the method reads besides; None if it could change meanwhile."""
        found: dict[str, Any] = {}
        for name in self.attributes:
            found[f"_rl_self_{name}"] = inspect.getattr_static(user, name, self)
        for name in self.names:
            found[f"_rl_global_{name}"] = space.get(name, self)
        is_hidden = any(name in space for name in self.functions)
        are_plain = all(type(value) in _SCALARS for value in found.values())
        return found if are_plain and not is_hidden else None

    def is_stale(self, known: dict[str, Any], user: Any, space: dict[str, Any]) -> bool:
        """Whether a call has changed something of what the method reads besides."""
        now = self.constants_of(user, space)
        return now is None or any(now[name] is not v for name, v in known.items())


@lru_cache(maxsize=128)
def _written(code: CodeType, source: str, shape: Shape) -> _Text | None:
    """Return the loop for a method; None if none of it can be written out."""
    try:
        with PARSING:
            return _text(code, source, shape)
    except Exception:  # noqa: BLE001 - what Python can run, we can always call
        return None


def _text(code: CodeType, source: str, shape: Shape) -> _Text | None:
    method = parsed(code, source)
    if method is None:
        return None
    translation = Translation(code, shape)
    statements = translation.block(method.body)
    always = always_assigned(statements, translation.locals)
    if always is None:
        return None
    met = translation.met
    values = _sorted(met, always)
    whole = ast.Module(statements, [])
    statements = _Reading(values).visit(whole).body
    checks = ast.parse(_checks(shape, met, values, statements)).body
    tree = _Filled(statements, checks).visit(ast.parse(_loop(shape, met, values)))
    return _Text(
        compile(ast.fix_missing_locations(tree), "<inlined>", "exec"),
        tuple(met.columns),
        tuple(met.attributes),
        tuple(met.names),
        tuple(met.functions),
    )


class _Sorted(NamedTuple):
    """Values that the method uses, by when they are assigned."""

    # By every record: a new key has them once its first one is done.
    always: list[str]
    # By some records: until then they are unset, which is a state of its own.
    sometimes: list[str]
    # Never: what is unset stays so, and reading gives the default.
    never: list[str]


def _sorted(met: Met, always: set[str]) -> _Sorted:
    assigned = {n: f"_rl_value_{n}" in always for n in met.assigned}
    return _Sorted(
        [n for n, is_always in assigned.items() if is_always],
        [n for n, is_always in assigned.items() if not is_always],
        [n for n in met.used if n not in assigned],
    )


class _Reading(ast.NodeTransformer):
    """Lets values that may be unset be read as their defaults."""

    def __init__(self, values: _Sorted) -> None:
        self._others = {f"_rl_value_{n}": f"_rl_read_{n}" for n in values.never}
        self._unset = {
            f"_rl_value_{n}": f"(_rl_default_{n} if _rl_value_{n} is _rl_unset"
            f" else _rl_value_{n})"
            for n in values.sometimes
        }

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self._unset:
            return ast.parse(self._unset[node.id], mode="eval").body
        return ast.Name(self._others.get(node.id, node.id), node.ctx)

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        # It stays what it is: a list, and all its names, would change in place.
        assert isinstance(node.target, ast.Name)
        fresh = ast.AugAssign(node.target, node.op, self.visit(node.value))
        before = self.visit(ast.Name(node.target.id, ast.Load()))
        if isinstance(before, ast.Name):
            return [fresh]
        return [ast.Assign([node.target], before), fresh]


def _loop(shape: Shape, met: Met, values: _Sorted) -> str:
    """Return the loop, with a place for the statements of the method."""
    names = {v.name: f"_rl_value_{v.name}" for v in shape.values}
    start = {
        **dict.fromkeys(names, "None"),
        **{n: f"_rl_default_{n}" for n in values.always},
        **dict.fromkeys(values.sometimes, "_rl_unset"),
    }
    known = [f"if {names[n]} is None: {RAISE}" for n in values.always]
    known += [
        f"if {names[n]} is None: {names[n]} = _rl_unset" for n in values.sometimes
    ]
    read = [
        f"_rl_read_{n} = _rl_default_{n} if {names[n]} is None else {names[n]}"
        for n in values.never
    ]
    left = {
        **names,
        **{
            n: f"None if {names[n]} is _rl_unset else {names[n]}"
            for n in values.sometimes
        },
    }
    taken = {f"_rl_column_{n}": f"_rl_list_{n}" for n in range(len(met.columns))}
    lists = "".join(f"{name}, " for name in taken.values())
    if met.gives_rows and shape.has_times:
        taken["_rl_when"] = "times"
    parts = [f"{name}[_rl_begin:_rl_end]" for name in taken.values()]
    records = f"zip({', '.join(parts)}, strict=True)" if len(parts) > 1 else parts[:1]
    return _LOOP.format(
        columns=f"{lists} = columns" if lists else "",
        key="(_rl_key,) = _rl_key" if met.reads_key and shape.is_single else "",
        mark="_rl_mark = len(_rl_main)" if met.gives_rows else "",
        fresh="; ".join(f"{names[n]} = {value}" for n, value in start.items()),
        values="".join(f"{name}, " for name in names.values()),
        known=("\n" + " " * 16).join(known),
        read=("\n" + " " * 12).join(read),
        record=", ".join(taken) or "_rl_place",
        records="".join(records) or "range(_rl_begin, _rl_end)",
        left="".join(f"{value}, " for value in left.values()),
        rewind="del _rl_main[_rl_mark:]" if met.gives_rows else "",
        few=_FEW,
    )


def _checks(shape: Shape, met: Met, values: _Sorted, statements: list[ast.stmt]) -> str:
    """Return what brings values that a record has assigned to their types."""
    kinds: dict[str, type | None] = {}
    for v in shape.values:
        is_known = v.has_default and v.name not in values.sometimes
        kinds[f"_rl_value_{v.name}"] = v.kind if is_known else None
        kinds[f"_rl_read_{v.name}"] = v.kind if v.has_default else None
    types = {c.name: c.kind for c in shape.columns}
    columns = {f"_rl_column_{n}": types[c] for n, c in enumerate(met.columns)}
    kept = kept_types(statements, {**kinds, **columns})
    text = []
    for v in shape.values:
        name = f"_rl_value_{v.name}"
        if v.kind and v.name in met.assigned and name not in kept:
            settled = f"_rl_settle_{v.name}({name})"
            is_other = f"type({name}) is not {v.kind.__name__}"
            if v.name in values.sometimes:
                settled = f"_rl_unset if {name} is None else {settled}"
                is_other += f" and {name} is not _rl_unset"
            text.append(f"if {is_other}: {name} = {settled}")
    return "\n".join(text)


class _Filled(ast.NodeTransformer):
    """Puts statements where they belong, and checks at each end of a record."""

    def __init__(self, statements: list[ast.stmt], checks: list[ast.stmt]) -> None:
        self._statements, self._checks = statements, checks

    def visit_Continue(self, node: ast.Continue) -> Any:
        return [*self._checks, node]

    def visit_Expr(self, node: ast.Expr) -> Any:
        if not isinstance(node.value, ast.Name) or node.value.id != "_rl_body":
            return node
        # A condition that compilers drop: it makes one statement of several.
        block = ast.If(ast.Constant(value=True), self._statements or [ast.Pass()], [])
        return [self.generic_visit(block), *self._checks]
