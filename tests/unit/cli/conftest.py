"""A store to look at, and a way to call commands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.cli.stores import make_store

from riverlock.cli import main


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli() -> Callable[..., Result]:
    def call(*words: object) -> Result:
        done = CliRunner().invoke(main, [str(w) for w in words])
        return Result(done.exit_code, done.stdout, done.stderr)

    return call


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cli") / "store"
    make_store(root)
    return root


@pytest.fixture
def shop(made_once: Path, tmp_path: Path) -> Path:
    """A copy of the store, to be looked at or damaged."""
    return Path(shutil.copytree(made_once, tmp_path / "store"))
