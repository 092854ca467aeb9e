from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

APP = """
import riverlock as rl

flow = rl.Flow("shop")
source = rl.sources.files("in", format="json", schema="user string")
flow.read(source, uid="orders").key_by("user").count(uid="n").write(
    rl.sinks.console(), uid="out"
)
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    file = tmp_path / "drawn_app.py"
    file.write_text(APP)
    return file


def test_graph_draws_the_flow_of_a_file(cli: Any, app: Path) -> None:
    shown = cli("graph", app)

    assert shown.code == 0
    assert shown.out.startswith("flow shop\n")
    assert [line.split()[0] for line in shown.out.splitlines()[2:]] == ["1", "2", "3"]
    assert cli("graph", app, "--format", "text").out == shown.out


def test_graph_has_other_formats(cli: Any, app: Path) -> None:
    assert cli("graph", app, "--format", "mermaid").out.startswith("flowchart LR\n")
    ElementTree.fromstring(cli("graph", app, "--format", "svg").out)
    found = cli("graph", f"{app}:flow", "--format", "json").json
    assert [box["uid"] for box in found["boxes"]] == ["orders", "n", "out"]
    assert cli("graph", app, "--json").json == found


def test_graph_says_what_it_cannot_draw(cli: Any, app: Path) -> None:
    assert cli("graph", app, "--format", "png").code == 1
    assert "flow 'other'" in cli("graph", f"{app}:other").err


def test_graph_starts_no_spark(cli: Any, app: Path) -> None:
    loaded = "pyspark" in sys.modules

    assert cli("graph", app).code == 0
    assert ("pyspark" in sys.modules) == loaded
