"""A graph as a Mermaid flowchart, which Markdown viewers draw."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from riverlock.program.drawing.graph_model import Box, Graph

__all__ = ["as_mermaid"]

# What is around the text of a box, by kind.
_SHAPES = {
    "source": ("([", "])"),
    "operator": ("[[", "]]"),
    "sink": ("[(", ")]"),
    "step": ("[", "]"),
}


def as_mermaid(graph: Graph) -> str:
    """Return a flowchart from left to right; several regions have a frame each."""
    lines = ["flowchart LR"]
    regions = {box.region for box in graph.boxes}
    by_region = sorted(graph.boxes, key=lambda box: (box.region, box.number))
    for region, boxes in groupby(by_region, key=lambda box: box.region):
        inside = [f"    {_box(box)}" for box in boxes]
        if len(regions) > 1:
            inside = [f'    subgraph "{_quoted(region)}"', *inside, "    end"]
        lines += inside
    for arrow in graph.arrows:
        label = f'|"{_quoted(arrow.label)}"|' if arrow.label else ""
        lines.append(f"    b{arrow.start} -->{label} b{arrow.end}")
    return "\n".join(lines) + "\n"


def _box(box: Box) -> str:
    before, after = _SHAPES[box.kind]
    title = f"<b>{_quoted(box.title)}</b>"
    uid = [f"<i>{_quoted(box.uid)}</i>"] if box.uid else []
    state = [_quoted(f"keeps {line}") for line in box.state]
    lines = [title, *uid, *map(_quoted, box.details), *state]
    return f'b{box.number}{before}"{"<br/>".join(lines)}"{after}'


def _quoted(text: str) -> str:
    """Return text that Mermaid shows as it is."""
    named = {"&": "&amp;", '"': "&quot;", "<": "&lt;", ">": "&gt;"}
    return "".join(named.get(c, f"#{ord(c)};" if c in "#`[]{}|" else c) for c in text)
