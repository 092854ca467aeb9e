"""Where boxes go: columns from sources to sinks, with few crossings.

Each box is one column right of the last one that it reads. An arrow that passes columns
has a *lane* in each of them, a thin box, so that it goes around others. In each column
boxes stand in the order of what they read.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from riverlock.program.drawing.graph_model import Arrow, Graph

__all__ = ["Columns", "columns_of"]

# A box by its number; a lane by its arrow and column.
Item = int | tuple[int, int]
_SWEEPS = 4


@dataclass(frozen=True)
class Columns:
    """Boxes and lanes, column by column, from top to bottom; and the way of each arrow.

    Attributes:
        columns: What stands in each.
        ways: By the place of an arrow in the graph: its boxes and lanes, in order.
    """

    columns: tuple[tuple[Item, ...], ...]
    ways: tuple[tuple[Item, ...], ...]


def columns_of(graph: Graph) -> Columns:
    """Arrange a graph."""
    ranks = _ranks(graph)
    ways = [_way(place, arrow, ranks) for place, arrow in enumerate(graph.arrows)]
    columns: list[list[Item]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for number, rank in ranks.items():
        columns[rank].append(number)
    for way in ways:
        for lane in way[1:-1]:
            assert isinstance(lane, tuple)
            columns[lane[1]].append(lane)
    neighbours: dict[Item, list[Item]] = defaultdict(list)
    for way in ways:
        for one, other in pairwise(way):
            neighbours[one].append(other)
            neighbours[other].append(one)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        order = columns if forward else columns[::-1]
        for before, column in pairwise(order):
            _sort(column, before, neighbours)
    return Columns(tuple(map(tuple, columns)), tuple(ways))


def _ranks(graph: Graph) -> dict[int, int]:
    ranks: dict[int, int] = {}
    for box in graph.boxes:  # inputs have smaller numbers
        reads = [ranks[a.start] for a in graph.arrows if a.end == box.number]
        ranks[box.number] = max(reads, default=-1) + 1
    return ranks


def _way(place: int, arrow: Arrow, ranks: Mapping[int, int]) -> tuple[Item, ...]:
    passed = range(ranks[arrow.start] + 1, ranks[arrow.end])
    return (arrow.start, *((place, column) for column in passed), arrow.end)


def _sort(
    column: list[Item],
    before: Sequence[Item],
    neighbours: Mapping[Item, Sequence[Item]],
) -> None:
    """Let each stand at the height of its neighbours in the column before."""
    heights = {item: height for height, item in enumerate(before)}
    here = {item: height for height, item in enumerate(column)}

    def wanted(item: Item) -> tuple[float, int]:
        known = [heights[n] for n in neighbours[item] if n in heights]
        return sum(known) / len(known) if known else here[item], here[item]

    column.sort(key=wanted)
