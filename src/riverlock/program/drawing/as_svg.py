"""A graph as SVG: boxes in columns, arrows from left to right; nothing else is needed.

Text has a fixed width, so that boxes fit it without asking a browser.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape, quoteattr

from riverlock.program.drawing.layered import columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from riverlock.program.drawing.graph_model import Box, Graph
    from riverlock.program.drawing.layered import Columns, Item

__all__ = ["as_svg"]

_FONT: Final = 12
_CHARACTER: Final = 7.3
_LINE: Final = 16
_PADDING: Final = 10
_LANE: Final = 18
_BETWEEN: Final = 22
_GAP: Final = 70
_MARGIN: Final = 16
_TITLE: Final = 24
# Fill and border by kind: light enough for black text, apart also in grey.
_COLOURS: Final = {
    "source": ("#e3f1e4", "#3f7f45"),
    "step": ("#f3f3f1", "#8a8a84"),
    "operator": ("#dfeaf7", "#2f5f94"),
    "sink": ("#f8ead9", "#a5672a"),
}


@dataclass(frozen=True)
class _Frame:
    """Where something stands."""

    x: float
    y: float
    width: float
    height: float


def as_svg(graph: Graph) -> str:
    """Return a picture of a graph; boxes name their region if there are several."""
    if graph.has_regions:
        named = (
            replace(b, details=(*b.details, f"in {b.region}")) for b in graph.boxes
        )
        graph = replace(graph, boxes=tuple(named))
    boxes = {box.number: box for box in graph.boxes}
    arranged = columns_of(graph)
    frames = _frames(arranged, boxes, _gaps(graph, arranged))
    right = max((f.x + f.width for f in frames.values()), default=0) + _MARGIN
    bottom = max((f.y + f.height for f in frames.values()), default=0) + _MARGIN
    width = max(right, len(graph.flow) * _CHARACTER + 120)
    parts = [
        *_arrows(graph, arranged, frames),
        *(_box(box, frames[box.number]) for box in graph.boxes),
    ]
    name = quoteattr(f"flow {graph.flow}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{bottom:g}"'
        f' viewBox="0 0 {width:g} {bottom:g}" role="img" aria-label={name}'
        f' font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace"'
        f' font-size="{_FONT}">\n'
        '<defs><marker id="riverlock-tip" viewBox="0 0 8 8" refX="8" refY="4"'
        ' markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>\n'
        f'<rect width="{width:g}" height="{bottom:g}" fill="#fff"/>\n'
        f'<text x="{_MARGIN}" y="{_MARGIN + _FONT}" font-weight="bold">'
        f"flow {escape(graph.flow)}</text>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _lines(box: Box) -> list[tuple[str, str]]:
    """Return the lines of a box, each with its look."""
    bold, faint = ' font-weight="bold"', ' fill="#444"'
    title = box.title if box.kind in ("step", "operator") else f"{box.kind} {box.title}"
    lines = [(title, bold)]
    if box.uid:
        made = "" if box.is_named else " (made)"
        lines.append((f"uid {box.uid}{made}", ""))
    lines += [(each, faint) for each in box.details]
    lines += [(f"keeps {each}", faint) for each in box.state]
    if box.stages:
        several = "stage" if len(box.stages) == 1 else "stages"
        lines.append((f"{several} {', '.join(map(str, box.stages))}", ' fill="#777"'))
    return lines


def _gaps(graph: Graph, arranged: Columns) -> list[float]:
    """Return the room behind each column: for the longest label of its arrows."""
    gaps = [float(_GAP)] * len(arranged.columns)
    places = {i: n for n, column in enumerate(arranged.columns) for i in column}
    for arrow in graph.arrows:
        behind = places[arrow.start]
        # A label's middle is at six tenths of the way: half of it must fit behind.
        gaps[behind] = max(gaps[behind], len(arrow.label) * _CHARACTER / 0.8 + 24)
    return gaps


def _frames(
    arranged: Columns, boxes: Mapping[int, Box], gaps: list[float]
) -> dict[Item, _Frame]:
    sizes: dict[Item, tuple[float, float]] = {}
    for column in arranged.columns:
        for item in column:
            if isinstance(item, int):
                lines = [text for text, _ in _lines(boxes[item])]
                width = max(map(len, lines)) * _CHARACTER + 2 * _PADDING
                sizes[item] = width, len(lines) * _LINE + _PADDING
            else:
                sizes[item] = 0, _LANE
    heights = [
        sum(sizes[i][1] for i in column) + _BETWEEN * (len(column) - 1)
        for column in arranged.columns
    ]
    tallest, x = max(heights, default=0), float(_MARGIN)
    frames: dict[Item, _Frame] = {}
    for number, column in enumerate(arranged.columns):
        widest = max(sizes[i][0] for i in column)
        y = _MARGIN + _TITLE + (tallest - heights[number]) / 2
        for item in column:
            # Boxes of a column are as wide as its widest: arrows begin in one line.
            frames[item] = _Frame(x, y, widest, sizes[item][1])
            y += sizes[item][1] + _BETWEEN
        x += widest + gaps[number]
    return frames


def _box(box: Box, frame: _Frame) -> str:
    fill, border = _COLOURS[box.kind]
    text = "".join(
        f'<text x="{frame.x + _PADDING:g}" y="{frame.y + _LINE * (n + 1) - 1:g}"{look}>'
        f"{escape(line)}</text>"
        for n, (line, look) in enumerate(_lines(box))
    )
    radius = 12 if box.kind in ("source", "sink") else 3
    return (
        f'<g class={quoteattr(box.kind)} data-box="{box.number}">'
        f'<rect x="{frame.x:g}" y="{frame.y:g}" width="{frame.width:g}"'
        f' height="{frame.height:g}" rx="{radius}" fill="{fill}" stroke="{border}"/>'
        f"{text}</g>"
    )


def _arrows(
    graph: Graph, arranged: Columns, frames: Mapping[Item, _Frame]
) -> Iterable[str]:
    for arrow, way in zip(graph.arrows, arranged.ways, strict=True):
        start, *lanes, end = (frames[item] for item in way)
        x, y = start.x + start.width, start.y + start.height / 2
        path = [f"M{x:g},{y:g}"]
        for frame in (*lanes, end):
            path.append(_curve(x, y, frame.x, frame.y + frame.height / 2))
            x, y = frame.x + frame.width, frame.y + frame.height / 2
            if frame is not end:
                path.append(f"L{x:g},{y:g}")
        yield (
            f'<path class="arrow" data-from="{arrow.start}" data-to="{arrow.end}"'
            f' d="{" ".join(path)}" fill="none" stroke="#555"'
            ' marker-end="url(#riverlock-tip)"/>'
        )
        if arrow.label:
            yield _label(arrow.label, start, frames[way[1]])


def _label(text: str, start: _Frame, end: _Frame) -> str:
    """Return the label of an arrow, over the part of it where it is on its own."""
    x, to_x = start.x + start.width, end.x
    y, to_y = start.y + start.height / 2, end.y + end.height / 2
    at = y + (to_y - y) * 0.8  # where the curve is at six tenths of its way
    return (
        f'<text x="{x + (to_x - x) * 0.6:g}" y="{at - 5:g}" text-anchor="middle"'
        ' fill="#555" paint-order="stroke" stroke="#fff" stroke-width="4">'
        f"{escape(text)}</text>"
    )


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    middle = (x + to_x) / 2
    return f"C{middle:g},{y:g} {middle:g},{to_y:g} {to_x:g},{to_y:g}"
