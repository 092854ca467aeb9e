"""Python blocks run, in order and per page; commands of shell blocks exist."""

from __future__ import annotations

import re
import shlex
import types
from pathlib import Path

import click
import pytest
from pyspark.sql import SparkSession
from tests.docs.blocks import PAGES, ROOT, Block, all_blocks, blocks

from riverlock.cli import main

WITH_PYTHON = [p for p in PAGES if any(b.language == "python" for b in blocks(p))]
# Cut into the commands of a line; comments are gone by then.
_SEPARATORS = re.compile(r"&&|\|\||[|;]")


@pytest.mark.spark
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda p: p.name)
def test_python_blocks_of_a_page_run(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # As a script: what its blocks define is sent to workers by value.
    script = types.ModuleType("__main__")

    for block in blocks(page):
        if block.language == "python" and block.reason is None:
            name = f"{page.name}:{block.line}"
            exec(compile(block.code, name, "exec"), script.__dict__)

    if page.name == "README.md":
        made = sorted(tmp_path.glob("out/epoch=000000000000/*.json"))
        shown = next(b for b in blocks(page) if b.language == "json")
        assert "".join(f.read_text() for f in made) == shown.code


def _commands(block: Block) -> list[list[str]]:
    lines = [line.partition(" #")[0] for line in block.code.splitlines()]
    parts = [p for line in lines for p in _SEPARATORS.split(line) if p.strip()]
    return [shlex.split(p) for p in parts if not p.strip().startswith("#")]


@pytest.mark.parametrize(
    "block", all_blocks("bash", "sh"), ids=lambda b: f"{b.page.name}:{b.line}"
)
def test_commands_of_shell_blocks_exist(block: Block) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert isinstance(main, click.Group)
    for words in _commands(block):
        if words[0] == "make":
            assert words[1] in targets
        if words[0] == "riverlock":
            _check_command(main, words[1:])


def _check_command(group: click.Group, words: list[str]) -> None:
    context = click.Context(group)
    command = group.get_command(context, words[0])
    assert command is not None, f"there is no command {words[0]!r}"
    known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    assert [w for w in words[1:] if w.startswith("--") and w not in known] == []


def test_commands_named_in_text_exist() -> None:
    assert isinstance(main, click.Group)
    known = set(main.list_commands(click.Context(main)))
    for page in PAGES:
        named = set(re.findall(r"`riverlock ([a-z]+)", page.read_text()))
        assert named <= known, page


def test_files_named_in_text_exist() -> None:
    # What git ignores may lie on the writer's machine, and is in no clone.
    ignored = set((ROOT / ".gitignore").read_text().splitlines())
    pattern = r"`((?:docs|tests|examples|benchmarks|src)/[\w/.-]+)`"
    for page in PAGES:
        for name in re.findall(pattern, page.read_text()):
            assert (ROOT / name).exists(), f"{page.name} names {name}"
            assert name not in ignored, f"{page.name} names {name}, which no clone has"


def test_every_skipped_block_has_a_reason() -> None:
    skipped = [b for page in PAGES for b in blocks(page) if b.reason is not None]

    assert all(len(b.reason or "") > 10 for b in skipped)
