"""The drawing of a flow as plain data: what is drawn, not how."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

__all__ = ["Arrow", "Box", "Graph"]

MAIN: Final = "main"


@dataclass(frozen=True, kw_only=True)
class Box:
    """A source, step, operator or sink.

    Attributes:
        number: From 1 on; inputs have smaller numbers.
        kind: ``source``, ``step``, ``operator`` or ``sink``.
        title: What it does.
        uid: Its uid; None: it has none, and needs none.
        is_named: Whether the user has given the uid.
        details: More about it, a line each.
        state: What an operator keeps for each key, a line each.
        stages: The stages that it runs in: one Spark job each.
        region: The region whose epochs it takes part in.
    """

    number: int
    kind: str
    title: str
    uid: str | None = None
    is_named: bool = True
    details: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    stages: tuple[int, ...] = ()
    region: str = MAIN


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """Rows that go from one box to another.

    Attributes:
        start: Number of the box that they come from.
        end: Number of the box that they go to.
        label: Which of its outputs, or inputs, it is; empty: the main one.
    """

    start: int
    end: int
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A flow as boxes and arrows; ``flow.graph`` makes it.

    ``print(flow.graph)`` shows it as text, a notebook as a picture.

    Attributes:
        flow: The name of the flow.
        boxes: In the order of their numbers.
        arrows: From box to box.
    """

    flow: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    @property
    def has_regions(self) -> bool:
        """Whether boxes are of several regions."""
        return len({box.region for box in self.boxes}) > 1

    def __str__(self) -> str:
        """Return the graph as text, a line per box."""
        from riverlock.program.drawing.as_text import as_text

        return as_text(self)

    def mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart, for Markdown."""
        from riverlock.program.drawing.as_mermaid import as_mermaid

        return as_mermaid(self)

    def svg(self) -> str:
        """Return the graph as a picture, an SVG document."""
        from riverlock.program.drawing.as_svg import as_svg

        return as_svg(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the graph as plain data, for JSON."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """Return the picture, for notebooks."""
        return self.svg()
