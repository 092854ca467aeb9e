"""Landed Structured Streaming queries of two flows that are joined, under one cut."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.chaos.landed_flow import FLOWS, add, check, flow_of, has_read

import riverlock as rl

pytestmark = pytest.mark.spark


@contextmanager
def running(root: str, spark: SparkSession) -> Iterator[list[rl.Handle]]:
    """Run the flows on one session, until the block is left."""
    with ExitStack() as stack:
        handles = []
        for name in FLOWS:
            flow, store = flow_of(name, root), f"{root}/{name}"
            handles.append(flow.start(store, spark=spark, parallelism=1))
            stack.callback(handles[-1].stop)
        yield handles


def test_three_queries_of_two_flows_have_one_cut(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, stores = str(tmp_path), [str(tmp_path / name) for name in FLOWS]
    add(root, 0)
    with running(root, spark) as handles, ThreadPoolExecutor(1) as beside:
        while not has_read(root):
            assert all(handle.is_active for handle in handles)
            handles[0].wait(0.1)
        taken = beside.submit(
            rl.stores.savepoint_all, stores, "v", protocol="unaligned"
        )
        add(root, 1)
        check(root, taken.result(500))
    for store in stores:
        assert rl.stores.verify(store).is_whole
        assert [named.name for named in rl.open(store).snapshots()] == ["v"]
