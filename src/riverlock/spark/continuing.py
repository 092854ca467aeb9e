"""Whether a flow can go on from a store: all that is looked at before anything changes.

A start and ``riverlock check --store`` ask the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidFlowError
from riverlock.runtime.input_columns import plan_inputs
from riverlock.sinks.places import check_places
from riverlock.sources.reader import check_situated
from riverlock.spark.adoption import upgrade_of
from riverlock.spark.compile import compile_flow
from riverlock.spark.frames import known_columns
from riverlock.spark.outlets import waiting_output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from riverlock.flow.flow import Flow
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.records import Manifest
    from riverlock.sources.reader import Reader
    from riverlock.spark.compile import CompiledFlow

__all__ = ["check_continues", "compiled_on"]


def check_continues(
    catalog: Catalog, compiled: CompiledFlow, readers: Mapping[str, Reader]
) -> Manifest | None:
    """Return the newest epoch of a store, which a flow can go on from.

    Raises:
        RiverlockError: It cannot; nothing was changed.
    """
    flow, newest = compiled.flow, catalog.newest()
    if newest is not None:
        compiled.renumbering(newest).check()
        check_situated(readers, newest.inputs)
        compiled.inputs(newest).check()
        upgrade_of(catalog, compiled, newest).check()
    check_places({w.uid: w.sink for w in flow.writes}, catalog)
    waiting_output(catalog, flow, newest)
    return newest


def compiled_on(
    catalog: Catalog | None,
    flow: Flow,
    spark: SparkSession,
    readers: Mapping[str, Reader],
) -> CompiledFlow:
    """Compile a flow; if that fails, what its sources have lost is told.

    Args:
        catalog: The store to go on from, if any.
        flow: The flow.
        spark: Where expressions are analysed.
        readers: What reads its sources.

    Raises:
        InvalidFlowError: Something in it is impossible.
    """
    try:
        return compile_flow(flow, spark, readers)
    except InvalidFlowError as error:
        newest = None if catalog is None else catalog.newest()
        if newest is None:
            raise
        now = {
            uid: known_columns(r.read(at, at)).ddl for uid, r, at in _begins(readers)
        }
        changes = plan_inputs(
            newest.columns,
            now,
            sources=now,
            retired=flow.retirements,
            epoch=newest.epoch,
        )
        if not changes.steps:
            raise
        raise InvalidFlowError(
            str(error.__dict__["what"]),
            expected=str(error.__dict__["expected"]),
            found=str(error.__dict__["found"]),
            hint=f"since epoch {newest.epoch}, {changes}",
        ) from error


def _begins(readers: Mapping[str, Reader]) -> list[tuple[str, Reader, Any]]:
    return [(uid, reader, reader.initial()) for uid, reader in readers.items()]
