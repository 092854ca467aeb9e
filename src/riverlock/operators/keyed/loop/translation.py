"""Turns the statements of a user's method into those of a loop.

``self.spent += order.amount`` becomes ``_rl_value_spent += _rl_column_0``: names of the
loop in place of attributes. Only what is known to mean the same is taken. In place of a
statement that is not, the loop raises, and the key is left to the method itself.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final, NamedTuple

__all__ = [
    "RAISE",
    "Column",
    "Met",
    "Shape",
    "Translation",
    "UnknownError",
    "Value",
    "always_assigned",
    "parsed",
]

RAISE: Final = "raise _rl_unusual"
# ``self``, the record, and the context.
_ARGUMENTS: Final = 3
# Functions without side effects: they may be called twice.
_FUNCTIONS: Final = {
    f.__name__: f for f in (abs, bool, float, int, len, max, min, round, str)
}
_EXPRESSIONS: Final = (
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Constant),
    *(ast.Tuple, ast.List, ast.Dict, ast.JoinedStr, ast.FormattedValue),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context),
)


class UnknownError(Exception):
    """What is written there is not known to be the same in a loop."""


class Value(NamedTuple):
    """A value of the key's row."""

    name: str
    # The type that is stored as it is; None if it is not the user's to assign.
    kind: type | None
    # Whether reading it before it is set gives one of that type.
    has_default: bool


class Column(NamedTuple):
    """A column that records show as it is."""

    attribute: str
    name: str
    # None: some rows have no value.
    kind: type | None


class Shape(NamedTuple):
    """What a loop is written for."""

    values: tuple[Value, ...]
    columns: tuple[Column, ...]
    has_times: bool
    # That of tuples which are rows as they are; None: none is.
    width: int | None
    # Whether users see the one column of the key instead of a tuple.
    is_single: bool


@dataclass
class Met:
    """What statements refer to, in the order of appearance."""

    columns: dict[str, None] = field(default_factory=dict)
    # Values of the key, and those of them that are assigned.
    used: dict[str, None] = field(default_factory=dict)
    assigned: dict[str, None] = field(default_factory=dict)
    # What is only read: attributes of the process, and names of its module.
    attributes: dict[str, None] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    functions: dict[str, None] = field(default_factory=dict)
    gives_rows: bool = False
    reads_key: bool = False


def parsed(code: CodeType, source: str) -> ast.FunctionDef | None:
    """Return the tree of a method, if the text is that of this very code.

    Files change after they were loaded, and decorators put other code in its place.
    """
    try:
        (method,) = ast.parse(source).body
    except (SyntaxError, ValueError):
        return None
    has_more = code.co_kwonlyargcount or code.co_flags & (
        inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    )
    if not isinstance(method, ast.FunctionDef) or has_more:
        return None
    if code.co_argcount != _ARGUMENTS or code.co_cellvars or code.co_freevars:
        return None
    method.decorator_list, method.returns, method.args.defaults = [], None, []
    for each in (*method.args.posonlyargs, *method.args.args):
        each.annotation = None
    made = compile(ast.Module([method], []), "<method>", "exec", dont_inherit=True)
    (again,) = (c for c in made.co_consts if isinstance(c, CodeType))
    parts = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars")
    is_same = all(getattr(again, p) == getattr(code, p) for p in parts)
    # 1, 1.0 and True are equal, but not the same.
    is_same &= repr(again.co_consts) == repr(code.co_consts)
    return method if is_same else None


class Translation:
    """Translates one method.

    Attributes:
        met: What the statements refer to.
        locals: What the method's own variables are called in the loop.
    """

    def __init__(self, code: CodeType, shape: Shape) -> None:
        """Take the names of the method from its code."""
        self.met = Met()
        self._shape = shape
        self._self, self._record, self._ctx = code.co_varnames[:_ARGUMENTS]
        self._locals = {n: f"_rl_local_{n}" for n in code.co_varnames[_ARGUMENTS:]}
        self.locals = set(self._locals.values())
        self._is_generator = bool(code.co_flags & inspect.CO_GENERATOR)
        self._types = {v.name: v.kind for v in shape.values if v.kind is not None}
        self._attributes = {c.attribute: c.name for c in shape.columns}
        self._columns = {c.name for c in shape.columns}

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements of the loop; where one is unknown, it raises."""
        found: list[ast.stmt] = []
        for each in statements:
            before = copy.deepcopy(self.met)
            try:
                found += self._statement(each)
            except UnknownError:
                self.met = before
                found += ast.parse(RAISE).body
            if found and isinstance(found[-1], ast.Continue | ast.Raise):
                break
        return found

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.Pass() | ast.Expr(ast.Constant()):
                return []
            case ast.Assign(targets, value):
                fresh = self._expression(value)
                return [ast.Assign([self._target(t) for t in targets], fresh)]
            case ast.AnnAssign(target, _, value) if value is not None:
                return [ast.Assign([self._target(target)], self._expression(value))]
            case ast.AugAssign(target, operator, value):
                self._expression(target)  # is read, too
                fresh, name = self._expression(value), self._target(target)
                assert isinstance(name, ast.Name)
                return [ast.AugAssign(name, operator, fresh)]
            case ast.If(test, body, orelse):
                condition = self._expression(test)
                then = self.block(body) or [ast.Pass()]
                return [ast.If(condition, then, self.block(orelse))]
            case ast.Expr(ast.Yield(value)) if value is not None:
                return self._given("_rl_give", self._expression(value))
            case ast.Return(None) | ast.Return(ast.Constant(None)):
                return [ast.Continue()]
            case ast.Return(value) if value is not None and not self._is_generator:
                given = self._given("_rl_give_all", self._expression(value))
                return [*given, ast.Continue()]
        raise UnknownError

    def _given(self, how: str, value: ast.expr) -> list[ast.stmt]:
        """Return what hands rows on, as they are where that is known to be right."""
        self.met.gives_rows = True
        when = "_rl_when" if self._shape.has_times else "None"
        width = self._shape.width
        text = f"_rl_given = 0\n{how}(_rl_given, {when})"
        if how == "_rl_give" and width is not None:
            text = (
                f"_rl_given = 0\n"
                f"if type(_rl_given) is tuple and len(_rl_given) == {width}:\n"
                f"    _rl_main.append((_rl_given, {when}))\n"
                f"else: {how}(_rl_given, {when})"
            )
        first, *others = ast.parse(text).body
        assert isinstance(first, ast.Assign)
        first.value = value
        return [first, *others]

    def _target(self, node: ast.expr) -> ast.expr:
        match node:
            case ast.Name(name) if name in self._locals:
                return ast.Name(self._locals[name], ast.Store())
            case ast.Attribute(ast.Name(owner), name) if owner == self._self:
                if name in self._types:
                    self.met.used[name] = self.met.assigned[name] = None
                    return ast.Name(f"_rl_value_{name}", ast.Store())
            case ast.Tuple(parts):
                return ast.Tuple([self._target(p) for p in parts], ast.Store())
            case _:
                pass
        raise UnknownError

    def _expression(self, node: ast.AST) -> Any:
        match node:
            case ast.Name(name):
                return ast.Name(self._name(name), ast.Load())
            case ast.Attribute(ast.Name(owner), name):
                return ast.Name(self._attribute(owner, name), ast.Load())
            case ast.Subscript(ast.Name(owner), ast.Constant(str(name))):
                if owner != self._record or name not in self._columns:
                    raise UnknownError
                return ast.Name(self._column(name), ast.Load())
            case ast.Call(ast.Name(name), args, []) if self._is_function(name):
                self.met.functions[name] = None
                arguments = [self._expression(a) for a in args]
                return ast.Call(ast.Name(name, ast.Load()), arguments, [])
            case ast.Compare(_, operators, others):
                _check_identity(operators, others)
            case _:
                pass
        if not isinstance(node, _EXPRESSIONS):
            raise UnknownError
        return type(node)(**{n: self._part(v) for n, v in ast.iter_fields(node)})

    def _part(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._part(v) for v in value]
        return self._expression(value) if isinstance(value, ast.AST) else value

    def _name(self, name: str) -> str:
        if name in (self._self, self._record, self._ctx):
            raise UnknownError
        if name in self._locals:
            return self._locals[name]
        self.met.names[name] = None
        return f"_rl_global_{name}"

    def _attribute(self, owner: str, name: str) -> str:
        if owner == self._record and name in self._attributes:
            return self._column(self._attributes[name])
        if owner == self._ctx and name == "key":
            self.met.reads_key = True
            return "_rl_key"
        if owner != self._self:
            raise UnknownError
        if name in self._types:
            self.met.used[name] = None
            return f"_rl_value_{name}"
        if name in {v.name for v in self._shape.values}:
            raise UnknownError  # reached through a handle
        self.met.attributes[name] = None
        return f"_rl_self_{name}"

    def _column(self, name: str) -> str:
        self.met.columns[name] = None
        return f"_rl_column_{list(self.met.columns).index(name)}"

    def _is_function(self, name: str) -> bool:
        is_pure = getattr(builtins, name, None) is _FUNCTIONS.get(name, self)
        is_own = name in self._locals or name in (self._self, self._record, self._ctx)
        return is_pure and not is_own


def _check_identity(operators: list[ast.cmpop], others: list[ast.expr]) -> None:
    """Let ``is`` ask only for None and the like: of numbers there are copies."""
    for operator, other in zip(operators, others, strict=True):
        if isinstance(operator, ast.Is | ast.IsNot) and not (
            isinstance(other, ast.Constant)
            and (other.value is None or isinstance(other.value, bool))
        ):
            raise UnknownError


def always_assigned(statements: list[ast.stmt], names: set[str]) -> set[str] | None:
    """Return what is assigned on every way to the end; None if none leads there.

    Args:
        statements: Those of a loop.
        names: Variables that must not be read before they are assigned, since what the
            record before has left in them is still there.

    Raises:
        UnknownError: One may be read.
    """
    ends: list[set[str]] = []
    left = _followed(statements, set(), names, ends)
    if left is not None:
        ends.append(left)
    return set.intersection(*ends) if ends else None


def _followed(
    statements: list[ast.stmt], known: set[str], names: set[str], ends: list[set[str]]
) -> set[str] | None:
    """Follow all ways; return what is assigned behind them, None if all have ended."""
    for each in statements:
        match each:
            case ast.If(test, body, orelse):
                _check_read(test, known, names)
                ways = [_followed(b, known, names, ends) for b in (body, orelse)]
                behind = [way for way in ways if way is not None]
                if not behind:
                    return None
                known = set.intersection(*behind)
            case ast.Continue():
                ends.append(known)
                return None
            case ast.Raise():
                return None
            case _:
                _check_read(each, known, names)
                known = known | _names_in(each, ast.Store)
    return known


def _check_read(node: ast.AST, known: set[str], names: set[str]) -> None:
    read = _names_in(node, ast.Load)
    if isinstance(node, ast.AugAssign):
        read |= _names_in(node.target, ast.Store)
    if (read & names) - known:
        raise UnknownError


def _names_in(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    found = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in found if isinstance(n.ctx, context)}
