"""Whether a flow can continue from a store: everything checked before a change.

A start and ``riverlock check --store`` ask the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from riverlock.change.input_columns import plan_inputs
from riverlock.connectors.base.source_reader import check_situated
from riverlock.connectors.databases.sink import SqlSink
from riverlock.connectors.databases.source import Sql
from riverlock.connectors.delta.sink import DeltaSink
from riverlock.connectors.files.own_output import check_apart
from riverlock.connectors.files.sink import FileSink
from riverlock.connectors.sink_places import check_meant, check_owners
from riverlock.core import paths
from riverlock.core.errors import InvalidFlowError, RiverlockError, SourceError
from riverlock.driver.starting.adoption import upgrade_of
from riverlock.driver.starting.outlets import waiting_output
from riverlock.program.graph import Read
from riverlock.snapshot.format.store_layout import FLOW
from riverlock.sources import Files
from riverlock.stages.planning import compile_flow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from riverlock.connectors.base.source_reader import Reader
    from riverlock.driver.engine import Engine
    from riverlock.program.program import Program
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest
    from riverlock.stages.compiled import CompiledFlow

__all__ = ["check_continues", "compiled_on", "obstacles"]


def check_here(
    flow: Program, newest: Manifest | None, readers: Mapping[str, Reader]
) -> None:
    """Check whether sources and sinks are at the places where they were.

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


def check_not_fed(flow: Program, catalog: Catalog) -> None:
    """Check whether a flow would read its own output, or its store.

    Raises:
        InvalidFlowError: It would.
    """
    read = {
        node.uid: node.source.path
        for node in flow.find(Read)
        if isinstance(node.source, Files)
    }
    root = catalog.storage.local_path(FLOW)
    written = {} if root is None else {"its store": str(root.parent)}
    for write in flow.writes:
        match write.sink:
            case FileSink(path=path) | DeltaSink(path=path):
                written[f"sink {write.uid!r}"] = path
            case SqlSink(address=address) if address.dialect == "sqlite":
                written[f"sink {write.uid!r}"] = address.database
    check_apart(read, written)


def check_continues(
    catalog: Catalog, compiled: CompiledFlow, readers: Mapping[str, Reader]
) -> Manifest | None:
    """Return the newest epoch of a store, which a flow can continue from.

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
    yield from _raised(lambda: check_not_fed(flow, catalog))
    yield from _raised(lambda: check_owners(sinks, catalog))
    yield from _raised(lambda: waiting_output(catalog, flow, newest))


def _raised(check: Callable[[], object]) -> Iterator[RiverlockError]:
    try:
        check()
    except RiverlockError as error:
        yield error


def compiled_on(
    catalog: Catalog | None,
    flow: Program,
    engine: Engine,
    readers: Mapping[str, Reader],
) -> CompiledFlow:
    """Compile a flow; if that fails, what its sources have lost is told.

    Args:
        catalog: The store to continue from, if any.
        flow: The flow.
        engine: What is to run it.
        readers: What reads its sources.

    Raises:
        InvalidFlowError: Something in it is impossible.
    """
    try:
        return compile_flow(flow, readers, engine.analysis(flow, readers))
    except SourceError:
        # What a path meant before says more than that nothing is there.
        check_here(flow, None if catalog is None else catalog.newest(), readers)
        raise
    except InvalidFlowError as error:
        newest = None if catalog is None else catalog.newest()
        if newest is None:
            raise
        now = {uid: engine.source_columns(r).ddl for uid, r in readers.items()}
        changes = plan_inputs(
            newest.columns,
            now,
            sources=now,
            retired=flow.retired_columns,
            epoch=newest.epoch,
        )
        if not changes.steps:
            raise
        raise InvalidFlowError(
            error.what,
            expected=error.expected,
            found=error.found,
            hint=f"since epoch {newest.epoch}, {changes}",
            line=error.line,
        ) from error
