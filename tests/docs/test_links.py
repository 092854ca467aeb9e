"""Links between pages lead somewhere; tables have as many cells in every row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.blocks import PAGES, ROOT

EVERY = [*PAGES, ROOT / "CHANGELOG.md"]
_CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]\n]+\]\(([^)\s]+)\)")


def _prose(page: Path) -> str:
    return _CODE.sub("", page.read_text())


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles}


@pytest.mark.parametrize("page", EVERY, ids=lambda p: p.name)
def test_relative_links_lead_to_files_and_headings(page: Path) -> None:
    for link in _LINK.findall(_prose(page)):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in _anchors(target), f"{page.name} links to {link}"


def _cells(row: str) -> int:
    # A bar in code counts too, unless it is escaped: that is how tables are read.
    return len(re.findall(r"(?<!\\)\|", row)) - 1


@pytest.mark.parametrize("page", EVERY, ids=lambda p: p.name)
def test_rows_of_a_table_have_as_many_cells(page: Path) -> None:
    tables = re.findall(r"(?:^\|.*\|$\n?)+", _prose(page), re.MULTILINE)
    for table in tables:
        head, rule, *rows = table.splitlines()
        assert set(rule) <= set("|-: "), f"{page.name}: {head}"
        for row in (rule, *rows):
            assert _cells(row) == _cells(head), f"{page.name}: {row}"


def test_a_row_of_a_table_ends_with_a_bar() -> None:
    for page in EVERY:
        rows = re.findall(r"^\|.*$", _prose(page), re.MULTILINE)
        assert [r for r in rows if not r.endswith("|")] == [], page.name
