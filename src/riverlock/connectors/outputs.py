"""The sinks of a flow, as a store knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from riverlock.connectors.base.committer import Owner
from riverlock.connectors.base.sink import place_of
from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from riverlock.connectors.base.sink import Sink
    from riverlock.snapshot.format.records import Flow, Manifest, Run
    from riverlock.snapshot.past import Past

__all__ = ["check_outputs", "sink_owner", "sink_plans"]


class _Write(Protocol):
    """A sink of a flow."""

    @property
    def uid(self) -> str: ...

    @property
    def sink(self) -> Sink: ...

    @property
    def replaces(self) -> bool: ...


def sink_owner(flow: Flow, sink: str, run: Run, past: Past) -> Owner:
    """Return on whose behalf a run opens a sink."""
    return Owner(
        flow=flow.id,
        sink=sink,
        run=run.run,
        origin=None if flow.origin is None else flow.origin.flow,
        token=run.token,
        past=past,
    )


def sink_plans(writes: Iterable[_Write]) -> dict[str, Any]:
    """Return what the plan of a region says about sinks."""
    known = list(writes)
    return {
        "sinks": {w.uid: w.sink.kind for w in known},
        "places": {w.uid: place_of(w.sink) for w in known},
        "replacing": frozenset(w.uid for w in known if w.replaces),
    }


def check_outputs(newest: Manifest, kinds: Mapping[str, str]) -> None:
    """Check that each sink can commit the newest epoch once more.

    Args:
        newest: The manifest that a start has every sink commit again.
        kinds: The kind of each sink of the flow, by its uid.

    Raises:
        InvalidConfigError: A sink has become one of another kind, which would not
            understand what was staged for it.
    """
    for uid, output in newest.outputs.items():
        kind = kinds.get(uid, output.kind)
        if kind != output.kind:
            raise InvalidConfigError(
                f"sink {uid!r} of kind {kind!r}",
                expected=f"kind {output.kind!r}, as in epoch {newest.epoch}",
                found=f"{kind!r}",
                hint="give the new sink another uid",
            )
