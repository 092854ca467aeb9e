"""Flows of this folder are pickled by value: workers do not have the tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.chaos import worker_flow
from tests.chaos.worker_flow import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Clone = Callable[..., Options]


@pytest.fixture(scope="session", autouse=True)
def _pickled_by_value() -> Iterator[None]:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(worker_flow)  # type: ignore[no-untyped-call]
    yield
    cloudpickle.unregister_pickle_by_value(worker_flow)  # type: ignore[no-untyped-call]


@pytest.fixture(scope="session")
def half_done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Options:
    """A store in the middle of its input: four epochs are committed, more rows wait."""
    root = tmp_path_factory.mktemp("half-done")
    options = Options(
        store=str(root / "store"), out=str(root / "out"), rows=2_000, epoch_rows=300
    )
    worker_flow.run(options, spark=spark, max_epochs=4)
    return options


@pytest.fixture
def clone(half_done: Options, tmp_path: Path) -> Clone:
    """Copy the half-done store, with or without its working copies."""

    def copy(*, with_copies: bool = False, **changes: Any) -> Options:
        skip = shutil.ignore_patterns() if with_copies else _without_copies
        shutil.copytree(half_done.store, tmp_path / "store", ignore=skip)
        shutil.copytree(half_done.out, tmp_path / "out")
        return replace(
            half_done,
            store=str(tmp_path / "store"),
            out=str(tmp_path / "out"),
            **changes,
        )

    return copy


def _without_copies(folder: str, names: list[str]) -> set[str]:
    return {n for n in names if n == ".working"}
