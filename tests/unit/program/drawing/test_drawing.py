from __future__ import annotations

import json
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import riverlock as rl
from riverlock.program.drawing.graph_model import Arrow, Box, Graph
from riverlock.program.drawing.layered import columns_of
from riverlock.testing import rows

COLUMNS = "user string, amount double, at timestamp"
SVG = "{http://www.w3.org/2000/svg}"


class Velocity(rl.Process):
    output = "user string"
    spent = rl.Value("double", default=0.0)
    recent = rl.List("timestamp")
    odd = rl.SideOutput("user string")

    def on_event(self, order: Any, ctx: Any) -> None: ...

    def on_broadcast(self, rate: Any, ctx: Any) -> None: ...


def read(flow: rl.Flow, uid: str | None) -> rl.Stream:
    source = rl.sources.files(uid or "in", format="json", schema=COLUMNS)
    return flow.read(source, uid=uid)


@pytest.fixture
def flow() -> rl.Flow:
    flow = rl.Flow("shop")
    orders = read(flow, "orders").event_time("at", delay="1 minute")
    rates = read(flow, None)
    large = orders.where("amount > 100 AND user <> 'a & b'")
    velocity = large.key_by("user").process(Velocity(), uid="velocity", broadcast=rates)
    velocity.write(rl.sinks.files("alerts", format="json"), uid="alerts")
    velocity.side("odd").write(rl.sinks.memory())
    hours = orders.key_by("user").window(rl.tumbling("1 hour"))
    hourly = hours.agg(n="count(*)", uid="hourly")
    hourly.write(
        rl.sinks.sql("postgresql://me:secret@host/db", table="hours"), uid="table"
    )
    hourly.late.write(rl.sinks.files("late", format="json"), uid="late")
    left, right = velocity.key_by("user"), rates.key_by("user")
    left.lookup(right, uid="joined").write(rl.sinks.memory(), uid="pairs")
    rates.bad.write(rl.sinks.memory(), uid="bad")
    orders.write(rl.sinks.memory(), uid="copy")
    return flow


def by_uid(graph: Graph) -> dict[str | None, Box]:
    return {box.uid: box for box in graph.boxes}


def test_boxes_say_what_users_wrote(flow: rl.Flow) -> None:
    boxes = by_uid(flow.graph)

    assert (boxes["orders"].kind, boxes["orders"].title) == ("source", "files")
    assert boxes["orders"].details == ("orders",)
    assert boxes["velocity"].title == "Velocity"
    assert boxes["velocity"].details == ("by user",)
    assert boxes["velocity"].state == ("spent: double", "recent: list<timestamp>")
    assert boxes["hourly"].details == ("by user", "each 1 hour", "n = count(*)")
    assert boxes["joined"].title == "lookup"
    assert boxes["event_time-1"].details == ("delay 1 minute",)
    assert not boxes["files-1"].is_named
    # Nothing is kept for a sink of memory, nor under the uid of an event time.
    assert boxes["memory-1"].is_named
    assert boxes["event_time-1"].is_named


def test_arrows_say_which_output_and_which_input(flow: rl.Flow) -> None:
    graph = flow.graph
    names = {box.number: box.uid or box.title for box in graph.boxes}

    found = {(names[a.start], names[a.end], a.label) for a in graph.arrows}

    assert found == {
        ("orders", "event_time-1", ""),
        ("event_time-1", "where", ""),
        ("where", "velocity", ""),
        ("files-1", "velocity", "broadcast"),
        ("velocity", "alerts", ""),
        ("velocity", "memory-1", "odd"),
        ("event_time-1", "hourly", ""),
        ("hourly", "table", ""),
        ("hourly", "late", "late"),
        ("velocity", "joined", "left"),
        ("files-1", "joined", "right"),
        ("joined", "pairs", ""),
        ("files-1", "bad", "bad"),
        ("event_time-1", "copy", ""),
    }
    assert all(a.start < a.end for a in graph.arrows)


def test_a_stage_ends_with_an_operator_or_with_sinks_of_rows_of_none(
    flow: rl.Flow,
) -> None:
    boxes = by_uid(flow.graph)
    velocity, hourly = boxes["velocity"].stages, boxes["hourly"].stages

    assert len(velocity) == len(hourly) == 1
    assert velocity != hourly
    assert boxes["alerts"].stages == velocity
    assert boxes["late"].stages == boxes["table"].stages == hourly
    assert set(boxes["orders"].stages) == {
        *velocity,
        *hourly,
        *boxes["copy"].stages,
    }
    assert boxes["joined"].stages == boxes["pairs"].stages
    assert {box.region for box in flow.graph.boxes} == {"main"}


def test_text_has_a_line_per_box(flow: rl.Flow) -> None:
    graph = flow.graph
    title, heads, *lines = str(graph).splitlines()

    assert title == "flow shop"
    assert heads.split() == ["what", "uid", "reads", "stage"]
    assert len(lines) == len(graph.boxes)
    (velocity,) = [line for line in lines if "velocity" in line]
    assert "keeps spent: double, recent: list<timestamp>" in velocity
    assert "broadcast" in velocity


def test_mermaid_escapes_what_would_end_a_label(flow: rl.Flow) -> None:
    lines = flow.graph.mermaid().splitlines()

    assert lines[0] == "flowchart LR"
    (where,) = [line for line in lines if "where" in line]
    assert "amount &gt; 100 AND user &lt;&gt; 'a &amp; b'" in where
    assert sum("-->" in line for line in lines) == len(flow.graph.arrows)
    assert not any("subgraph" in line for line in lines)


def test_mermaid_frames_regions_if_there_are_several() -> None:
    boxes = tuple(
        Box(number=n, kind="step", title=f"s{n}", region=region)
        for n, region in ((1, "main"), (2, "slow"))
    )
    graph = Graph(flow="two", boxes=boxes, arrows=(Arrow(start=1, end=2),))

    assert graph.mermaid().count("subgraph") == 2


def test_svg_is_well_formed_and_has_every_box_arrow_and_line(flow: rl.Flow) -> None:
    graph = flow.graph
    root = ElementTree.fromstring(graph.svg())

    drawn = root.findall(f"{SVG}g")
    assert [int(g.attrib["data-box"]) for g in drawn] == [b.number for b in graph.boxes]
    arrows = [p for p in root.iter(f"{SVG}path") if p.get("class") == "arrow"]
    assert [(int(p.attrib["data-from"]), int(p.attrib["data-to"])) for p in arrows] == [
        (a.start, a.end) for a in graph.arrows
    ]
    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert {"flow shop", "Velocity", "uid velocity", "keeps spent: double"} <= texts
    assert "amount > 100 AND user <> 'a & b'" in texts
    assert "uid files-1 (made)" in texts
    assert {"broadcast", "late", "odd", "left", "right", "bad"} <= texts


def test_svg_boxes_lie_apart_and_hold_their_text(flow: rl.Flow) -> None:
    root = ElementTree.fromstring(flow.graph.svg())
    frames = []
    for group in root.findall(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        x, y, width, height = (
            float(rect.attrib[name]) for name in ("x", "y", "width", "height")
        )
        frames.append((x, y, x + width, y + height))
        for text in group.findall(f"{SVG}text"):
            # A character of the font is 7.3 pixels wide.
            assert x < float(text.attrib["x"])
            end = float(text.attrib["x"]) + len(text.text or "") * 7.3
            assert end <= x + width
            assert y < float(text.attrib["y"]) < y + height
    whole = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(f[2] <= whole[0] and f[3] <= whole[1] for f in frames)
    for one, other in combinations(frames, 2):
        beside = one[2] < other[0] or other[2] < one[0]
        below = one[3] < other[1] or other[3] < one[1]
        assert beside or below


def test_notebooks_show_the_picture(flow: rl.Flow) -> None:
    assert flow.graph._repr_html_() == flow.graph.svg()


def test_plain_data_can_be_json(flow: rl.Flow) -> None:
    found = json.loads(json.dumps(flow.graph.to_dict()))

    assert found["flow"] == "shop"
    assert found["boxes"][0]["uid"] == "orders"
    assert found["arrows"][0] == {"start": 1, "end": 2, "label": ""}


@pytest.mark.parametrize("form", ["__str__", "mermaid", "svg"])
def test_passwords_are_not_drawn(flow: rl.Flow, form: str) -> None:
    assert "secret" not in getattr(flow.graph, form)()


def test_a_flow_without_steps_can_be_drawn() -> None:
    graph = rl.Flow("empty").graph

    assert str(graph).startswith("flow empty")
    assert graph.mermaid() == "flowchart LR\n"
    ElementTree.fromstring(graph.svg())


def test_long_lines_are_cut() -> None:
    flow = rl.Flow("long")
    read(flow, "in").where("user = '" + "x" * 200 + "'").write(rl.sinks.memory())

    (detail,) = [d for b in flow.graph.boxes if b.title == "where" for d in b.details]

    assert len(detail) == 48
    assert detail.endswith("…")


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=1, max_size=12),
)
def test_every_box_is_right_of_what_it_reads_and_arrows_pass_each_column(
    reads: list[list[int]],
) -> None:
    boxes = tuple(
        Box(number=n + 1, kind="step", title="s") for n, _ in enumerate(reads)
    )
    arrows = tuple(
        Arrow(start=each % n + 1, end=n + 1)
        for n, inputs in enumerate(reads)
        if n
        for each in inputs
    )
    arranged = columns_of(Graph(flow="any", boxes=boxes, arrows=arrows))

    places = {item: n for n, column in enumerate(arranged.columns) for item in column}
    assert sum(isinstance(item, int) for item in places) == len(boxes)
    for arrow, way in zip(arrows, arranged.ways, strict=True):
        assert (way[0], way[-1]) == (arrow.start, arrow.end)
        ranks = [places[item] for item in way]
        assert ranks == list(range(ranks[0], ranks[-1] + 1))
        assert len(ranks) > 1
    ElementTree.fromstring(Graph(flow="any", boxes=boxes, arrows=arrows).svg())


def test_channels_are_arrows_between_regions() -> None:
    flow = rl.Flow("cut")
    read = flow.read(rows("k string, at timestamp", []), uid="in")
    mapped = read.map(lambda r: tuple(r), "k string, at timestamp", uid="map")
    timed = mapped.event_time("at", uid="at")
    behind = timed.region("behind", uid="x", bound=rl.Bound(rows=9, age="1 minute"))
    behind.key_by("k").running_count(uid="n").write(rl.sinks.memory(), uid="out")
    graph = flow.graph
    assert [(b.uid, b.region, b.stages) for b in graph.boxes] == [
        ("in", "main", (2,)),
        ("map", "main", (2,)),
        ("at", "main", (2,)),
        ("n", "behind", (1,)),
        ("out", "behind", (1,)),
    ]
    crossing = [a for a in graph.arrows if a.label]
    assert [(a.start, a.end, a.label) for a in crossing] == [
        (3, 4, "channel x, at most 9 rows or 1 minute")
    ]
    assert 'subgraph "behind"' in graph.mermaid()
    assert "in behind" in graph.svg()
    assert str(graph).splitlines()[1].split()[0] == "region"
