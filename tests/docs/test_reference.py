"""What the documentation lists is what there is."""

from __future__ import annotations

import re
from dataclasses import fields

import click
import pytest
from tests.docs.blocks import ROOT

import riverlock as rl
from riverlock.cli import main
from riverlock.core import errors

REFERENCE = (ROOT / "docs" / "reference.md").read_text()
ERRORS = (ROOT / "docs" / "errors.md").read_text()
COMMANDS = (ROOT / "docs" / "commands.md").read_text()


def _first_cells(text: str) -> set[str]:
    return set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE))


def test_reference_lists_the_public_names() -> None:
    assert set(rl.__all__) - _first_cells(REFERENCE) == set()


@pytest.mark.parametrize("name", ["sources", "sinks", "stores", "tables", "testing"])
def test_reference_lists_the_names_of_a_module(name: str) -> None:
    public = set(getattr(rl, name).__all__) - {"MemorySink"}  # what memory() returns
    listed = set(re.findall(rf"`rl\.{name}\.(\w+)", REFERENCE))

    assert listed == public


@pytest.mark.parametrize(
    "kind",
    [rl.Flow, rl.Stream, rl.KeyedStream, rl.WindowedStream, rl.Context, rl.Handle],
)
def test_reference_lists_the_methods(kind: type) -> None:
    # dir: also what a class has from others, such as the joins of keyed streams.
    public = {n for n in dir(kind) if not n.startswith("_")}

    assert {n for n in public if not re.search(rf"\b{n}\b", REFERENCE)} == set()


def test_links_within_the_reference_lead_to_headings() -> None:
    titles = re.findall(r"^#+ (.*)$", REFERENCE, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}

    links = re.findall(r"\]\(#([^)]*)\)", REFERENCE)

    assert links
    assert [link for link in links if link not in anchors] == []


def test_reference_lists_the_options_of_a_run() -> None:
    from riverlock.driver.run_options import RunOptions

    options = {f.name for f in fields(RunOptions)} - {"clock"}  # for tests

    assert options <= _first_cells(REFERENCE)


def test_errors_page_lists_every_error() -> None:
    listed = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d) \|", ERRORS, re.MULTILINE)
    every = [getattr(errors, name) for name in errors.__all__]
    expected = {(c.code, c.__name__, str(c.exit_code)) for c in every}

    assert set(listed) == expected
    assert len(listed) == len(expected)


def test_commands_page_lists_every_command() -> None:
    listed = re.findall(r"^\| `riverlock ([a-z]+)", COMMANDS, re.MULTILINE)

    assert isinstance(main, click.Group)
    assert sorted(listed) == sorted(main.list_commands(click.Context(main)))


def test_error_codes_are_distinct() -> None:
    codes = [getattr(errors, name).code for name in errors.__all__]

    assert len(set(codes)) == len(codes)
