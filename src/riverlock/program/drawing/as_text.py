"""A graph as text: a line per box, in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from riverlock.program.drawing.graph_model import Box, Graph

__all__ = ["as_text"]

_TITLES = ("", "what", "uid", "reads", "stage", "")


def as_text(graph: Graph) -> str:
    """Return a table of the boxes; what each reads is told by numbers."""
    rows = [_TITLES, *(_row(box, graph) for box in graph.boxes)]
    if graph.has_regions:
        regions = ("region", *(box.region for box in graph.boxes))
        rows = [(n, r, *rest) for (n, *rest), r in zip(rows, regions, strict=True)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join([f"flow {graph.flow}", *(line.rstrip() for line in lines)])


def _row(box: Box, graph: Graph) -> tuple[str, ...]:
    reads = [
        f"{arrow.start} {arrow.label}".rstrip()
        for arrow in graph.arrows
        if arrow.end == box.number
    ]
    keeps = f"keeps {', '.join(box.state)}" if box.state else ""
    title = box.title if box.kind in ("step", "operator") else f"{box.kind} {box.title}"
    return (
        str(box.number),
        title,
        (box.uid or "") + ("" if box.is_named else " (made)"),
        ", ".join(reads),
        ", ".join(map(str, box.stages)),
        "; ".join(part for part in (*box.details, keeps) if part),
    )
