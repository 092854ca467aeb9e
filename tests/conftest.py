"""Seeds, the Spark session, stores, and a check that nothing is left running."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests.servers.kafka import kafka, kafka_proxy, topic  # noqa: F401 - fixtures
from tests.unsynced import without_sync

from riverlock.storage import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest_plugins = ["tests.longest_first", "tests.servers.fixtures"]

settings.register_profile(
    "dev",
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.register_profile(
    "night", settings.get_profile("dev"), max_examples=5_000, print_blob=True
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")
)

without_sync()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local session per run; tasks are tried four times, as on a cluster."""
    from riverlock.spark.session import local_session

    session = local_session("tests", master="local[2,4]")
    yield session
    session.stop()


@pytest.fixture
def store(tmp_path: Path) -> LocalStorage:
    """An empty store in a directory of its own."""
    return LocalStorage(tmp_path / "store")


# Threads that a test was failed for: the tests after it are not to blame.
_TOLD: set[threading.Thread] = set()


def _is_ours(thread: threading.Thread) -> bool:
    # Spark's gateway and the servers of other fixtures live as long as their session.
    return thread.name.startswith("riverlock") and thread.is_alive()


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fail a test that leaves one of our threads or working copies open."""
    yield
    left = [t for t in threading.enumerate() if _is_ours(t) and t not in _TOLD]
    # Those that end do so long before, on any machine; of the others there may be many.
    limit = time.monotonic() + 60
    for thread in left:
        thread.join(timeout=max(0.0, limit - time.monotonic()))
    running = [t for t in left if t.is_alive()]
    _TOLD.update(running)
    assert not running, f"threads still run: {[t.name for t in running]}"


@pytest.fixture(autouse=True)
def closed_copies() -> Iterator[None]:
    """Close the LMDB environments that a test opened in this process."""
    yield
    import sys

    module = sys.modules.get("riverlock.state.copy.lmdb")
    if module is not None:
        module.close_all()
