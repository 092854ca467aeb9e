"""How figures, times and tables look; plain text wherever no one watches."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click
import msgspec

from riverlock.core.times import END_US, to_iso

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import Console

    from riverlock.snapshot.format.input_times import InputTime

__all__ = [
    "age",
    "console",
    "count",
    "counted",
    "duration",
    "facts",
    "holding",
    "instant",
    "now_us",
    "policy",
    "print_json",
    "size",
    "standing",
    "table",
    "value",
    "watermark",
    "with_instants",
]

_STEPS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def now_us() -> int:
    """Return the machine's wall time."""
    return time.time_ns() // 1_000


def count(number: float | None) -> str:
    """Return a number with thousands separators."""
    return "?" if number is None else f"{number:,.0f}"


def counted(number: float | None, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "row"), counted(2000, "entry")
    ('1 row', '2,000 entries')
    """
    if number == 1:
        return f"1 {noun}"
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count(number)} {many}"


def size(number: float) -> str:
    """Return bytes in a readable unit."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def duration(seconds: float) -> str:
    """Return a duration in its two greatest units.

    >>> duration(0.25), duration(75), duration(90_000)
    ('250 ms', '1 min 15 s', '1 d 1 h')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    parts, rest = [], round(seconds)
    for length, unit in (*_STEPS, (1, "s")):
        amount, rest = divmod(rest, length)
        if amount:
            parts.append(f"{amount} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def age(at_us: int | None, now: int) -> str:
    """Return how long ago an instant was."""
    if at_us is None:
        return "never"
    return f"{duration(max(0, now - at_us) / 1e6)} ago"


def watermark(us: int | None, now_us: int | None = None) -> str:
    """Return a watermark for people, with its age if the current time is known."""
    if us is None:
        return "none"
    if us == END_US:
        return "at the end of the input"
    return instant(us) if now_us is None else f"{instant(us)} ({age(us, now_us)})"


def holding(inputs: Iterable[InputTime], now_us: int) -> str:
    """Return which inputs are idle, and which hold the watermark back."""
    found = [each for each in inputs if standing(each, now_us)]
    said = [f"{each.uid} {standing(each, now_us)}" for each in found]
    return f" ({', '.join(said)})" if said else ""


def standing(each: InputTime, now_us: int) -> str:
    """Return how an input compares with the others."""
    said = []
    if each.idle_since_us is not None:
        said.append(f"idle for {duration(max(0, now_us - each.idle_since_us) / 1e6)}")
    if each.holds_back:
        said.append("holds time back")
    if each.slowest_partition is not None:
        said.append(f"slowest partition {each.slowest_partition!r}")
    if each.idle_partitions:
        idle = len(each.idle_partitions)
        said.append(f"{idle} of {each.partitions} partitions idle")
    return ", ".join(said)


def policy(each: InputTime) -> str:
    """Return how the watermark of an input is made, and how long others wait for it."""
    if each.delay_us is None:
        return "not recorded"  # by an older version
    kind = "marker" if each.is_marked else "record"
    of = "" if each.per is None else f" of the slowest {each.per}"
    newest = f"its newest {kind}{of}"
    behind = f"{duration(each.delay_us / 1e6)} behind {newest}" if each.delay_us else ""
    if each.idle_after_us is None:
        silence = "waited for, however long it is silent"
    else:
        silence = (
            f"not waited for after {duration(each.idle_after_us / 1e6)} of silence"
        )
    return f"{behind or f'at {newest}'}; {silence}"


def instant(at_us: int | None) -> str:
    """Return an instant to the second, in UTC."""
    if at_us is None:
        return "none"
    return to_iso(at_us // 1_000_000 * 1_000_000)


def value(found: object) -> str:
    """Return a stored value as short text; text itself unchanged."""
    if found is None:
        return "null"
    if isinstance(found, str):
        return found if found.isprintable() else repr(found)[1:-1]
    if isinstance(found, bool | int | float):
        return str(found).lower() if isinstance(found, bool) else repr(found)
    if isinstance(found, bytes):
        return f"0x{found.hex()}"
    if isinstance(found, dict | list | tuple):
        return msgspec.json.encode(found).decode()
    return str(found)


def with_instants(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts with each instant as ISO 8601 too, beside its microseconds.

    >>> with_instants({"decided_us": 0, "silent_us": None})
    {'decided_us': 0, 'decided': '1970-01-01T00:00:00Z', 'silent_us': None}
    """
    found: dict[str, Any] = {}
    for name, each in facts.items():
        found[name] = each
        if name.endswith("_us") and each is not None:
            found.setdefault(name.removesuffix("_us"), instant(each))
    return found


def print_json(data: object) -> None:
    """Print data as one JSON value; a list or object as one line."""
    click.echo(msgspec.json.encode(data, enc_hook=str))


def console(*, stderr: bool = False) -> Console:
    """Return a terminal to draw on; made when needed, since rich is slow to import."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def facts(pairs: Mapping[str, str]) -> None:
    """Print names and their values, in two columns."""
    width = max(map(len, pairs), default=0)
    for name, text in pairs.items():
        first, *more = text.split("\n")
        click.echo(f"{click.style(name.ljust(width), dim=True)}  {first}")
        for line in more:
            click.echo(f"{' ' * width}  {line}")


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under a heading; columns of numbers are right-aligned.

    Nothing is cut off if the output is not a terminal.
    """
    cells = [[c if isinstance(c, str) else value(c) for c in row] for row in rows]
    numeric = [
        bool(rows) and all(_is_number(row[at]) for row in rows)
        for at in range(len(columns))
    ]
    if sys.stdout.isatty():
        _draw(columns, cells, numeric)
        return
    lines = [list(columns), *cells]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        texts = [
            c.rjust(w) if right else c.ljust(w)
            for c, w, right in zip(line, widths, numeric, strict=True)
        ]
        click.echo("  ".join(texts).rstrip())


def _draw(columns: Sequence[str], cells: list[list[str]], numeric: list[bool]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, right in zip(columns, numeric, strict=True):
        drawn.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in cells:
        drawn.add_row(*map(Text, row))
    console().print(drawn)


def _is_number(cell: object) -> bool:
    if isinstance(cell, str):
        return bool(cell) and (cell[0].isdigit() or cell in ("?", "-"))
    return isinstance(cell, int | float) and not isinstance(cell, bool)
