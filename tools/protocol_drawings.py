"""Draws how each protocol takes a snapshot: ``docs/drawings``, for docs/snapshots.md.

    python tools/protocol_drawings.py

The regions are those of the ledger (``examples/ledger``), at the moment at which the
snapshot is being taken. A box says what a region does then, an arrow what is in the
channel: epochs of the writer that are not read yet, and the marker ``◆`` between them.
They are drawn by what draws flows; a test compares the files.
"""

from __future__ import annotations

from pathlib import Path

from riverlock.program.drawing.graph_model import Arrow, Box, Graph

FOLDER = Path(__file__).parents[1] / "docs" / "drawings"


def drawing(
    name: str,
    regions: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]],
    channels: tuple[str, str, str],
    source: str = "goes on",
) -> Graph:
    """Return the ledger at one moment.

    Args:
        name: Of the picture.
        regions: What ``debit``, ``clearing`` and ``credit`` do, a line each.
        channels: What is in ``large``, ``small`` and ``cleared``.
        source: What the source does.
    """
    titles = ("region debit", "region clearing", "region credit")
    boxes = [Box(number=1, kind="source", title="transfers", details=(source,))]
    boxes += [
        Box(number=n, kind="operator", title=title, details=lines)
        for n, (title, lines) in enumerate(zip(titles, regions, strict=True), start=2)
    ]
    large, small, cleared = channels
    return Graph(
        flow=name,
        boxes=tuple(boxes),
        arrows=(
            Arrow(start=1, end=2),
            Arrow(start=2, end=3, label=f"large: {large}"),
            Arrow(start=2, end=4, label=f"small: {small}"),
            Arrow(start=3, end=4, label=f"cleared: {cleared}"),
        ),
    )


def drawings() -> dict[str, str]:
    """Return every picture, by the name of its file."""
    graphs = {
        "aligned": drawing(
            "ledger, aligned: credit waits for the second marker",
            (
                ("epoch 7 bore the marker ◆",),
                ("has read to ◆", "bears it in this epoch"),
                ("has read small to ◆", "does not read 8 and 9 yet", "waits: cleared"),
            ),
            ("◆ 8 9", "◆ 8 9", "41 ◆"),
        ),
        "unaligned": drawing(
            "ledger, unaligned: credit bears the marker at once",
            (
                ("epoch 7 bore the marker ◆",),
                ("still reads 5", "bears ◆ in the next epoch"),
                ("has seen ◆ in small", "bears it in this epoch", "6, 7 are in flight"),
            ),
            ("6 7 ◆ 8", "6 7 ◆ 8", "40 41"),
        ),
        "drain": drawing(
            "ledger, drain: sources pause until nothing is on its way",
            (
                ("reads nothing",),
                ("reads what is left",),
                ("reads what is left", "◆ when all is empty"),
            ),
            ("7", "empty", "41"),
            source="pauses",
        ),
        "epochs": drawing(
            "ledger, epochs: nobody goes on before all are there",
            (
                ("epoch 7 bore the marker ◆", "reads no source until", "all have it"),
                ("has read to ◆", "bears it in this epoch"),
                ("has read small to ◆", "waits: cleared"),
            ),
            ("◆", "◆", "41 ◆"),
            source="pauses",
        ),
        "torn": drawing(
            "ledger, not a snapshot: epochs that do not fit",
            (
                ("saved at epoch 6",),
                ("saved at epoch 40",),
                ("saved at epoch 12", "has the money of 7", "nobody has paid it"),
            ),
            ("6", "read to 7", "read to 40"),
        ),
    }
    return {f"{name}.svg": graph.svg() for name, graph in graphs.items()}


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, picture in drawings().items():
        (FOLDER / name).write_text(picture)


if __name__ == "__main__":
    main()
