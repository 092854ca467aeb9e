"""Whether a flow can go on from a store: all that is looked at before anything changes.

A start and ``riverlock check --store`` ask the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from riverlock.change.input_columns import plan_inputs
from riverlock.connectors.base.source_reader import check_situated
from riverlock.connectors.databases.source import Sql
from riverlock.connectors.sink_places import check_meant, check_owners
from riverlock.core import paths
from riverlock.core.errors import InvalidFlowError, RiverlockError, SourceError
from riverlock.driver.outlets import waiting_output
from riverlock.engines.jobs.adoption import upgrade_of
from riverlock.engines.jobs.compiler import compile_flow
from riverlock.engines.jobs.frames.nodes import known_columns
from riverlock.program.graph import Read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.engines.jobs.stages import CompiledFlow
    from riverlock.flow.flow import Flow
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["check_continues", "compiled_on", "obstacles"]


def check_here(
    flow: Flow, newest: Manifest | None, readers: Mapping[str, Reader]
) -> None:
    """Look whether sources and sinks are at the places where they were.

    Raises:
        SourceError, InvalidConfigError: They are not; it may be that the flow was
            started in another working directory.
    """
    if newest is None:
        return
    check_situated(readers, newest.inputs)
    for node in flow.find(Read):
        source, told = node.source, newest.meanings.get(node.uid)
        if isinstance(source, Sql) and source.address.given and told is not None:
            end = f" {source.table or source.query}"
            meant = told.place.removeprefix("sqlite:///").removesuffix(end)
            here = source.address.database
            paths.check_meant(
                f"source {node.uid!r}",
                source.address.given,
                here,
                meant,
                is_written=Path(here).exists(),
            )
    check_meant({w.uid: w.sink for w in flow.writes}, newest)


def check_continues(
    catalog: Catalog, compiled: CompiledFlow, readers: Mapping[str, Reader]
) -> Manifest | None:
    """Return the newest epoch of a store, which a flow can go on from.

    Raises:
        RiverlockError: It cannot; nothing was changed.
    """
    newest = catalog.newest()
    for error in obstacles(catalog, compiled, readers, newest):
        raise error
    return newest


def obstacles(
    catalog: Catalog,
    compiled: CompiledFlow,
    readers: Mapping[str, Reader],
    newest: Manifest | None,
) -> Iterator[RiverlockError]:
    """Yield what keeps a flow from going on from a store, what explains most first."""
    flow = compiled.flow
    sinks = {w.uid: w.sink for w in flow.writes}
    if newest is not None:
        renumbering = compiled.renumbering(newest)
        # In another directory, relative paths make all uids stand for others.
        if not renumbering.has_exchanged:
            yield from _raised(lambda: check_here(flow, newest, readers))
        yield from renumbering.refusals
        yield from compiled.inputs(newest).refusals
        yield from upgrade_of(catalog, compiled, newest).refusals
    yield from _raised(lambda: check_owners(sinks, catalog))
    yield from _raised(lambda: waiting_output(catalog, flow, newest))


def _raised(check: Callable[[], object]) -> Iterator[RiverlockError]:
    try:
        check()
    except RiverlockError as error:
        yield error


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
    except SourceError:
        # What a path meant before says more than that nothing is there.
        check_here(flow, None if catalog is None else catalog.newest(), readers)
        raise
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
            error.what,
            expected=error.expected,
            found=error.found,
            hint=f"since epoch {newest.epoch}, {changes}",
        ) from error


def _begins(readers: Mapping[str, Reader]) -> list[tuple[str, Reader, Any]]:
    return [(uid, reader, reader.initial()) for uid, reader in readers.items()]
