"""The manifests that a fork begins with, one of each region (format §6.2).

No sink has anything to commit. Rows that were in flight are what the first epoch of
their writer adds to the channel, and the reader has not read that epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.snapshot.format.channels import channel_ends
from riverlock.snapshot.format.parents import own_path, parent_in
from riverlock.snapshot.format.records import CHANNEL, InputRange, SinkOutput
from riverlock.snapshot.format.store_layout import PARENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.snapshot.format.records import ChannelColumns, Manifest, Run
    from riverlock.snapshot.in_flight import Between

__all__ = ["FirstEpochs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstEpochs:
    """How epochs of a store become the first ones of its fork.

    Attributes:
        flow: The id of the fork.
        parent: The id of the flow that is forked; None: its files are copied.
        between: What was in flight.
    """

    flow: str
    parent: str | None
    between: tuple[Between, ...]

    def of(self, target: Manifest, run: Run, *, now_us: int) -> Manifest:
        """Return the first manifest of a region."""
        operators = {
            uid: msgspec.structs.replace(
                state,
                files=tuple(
                    msgspec.structs.replace(f, path=self.path(f.path))
                    for f in state.files
                ),
                lists=(),  # made anew: they would name the files' other paths
            )
            for uid, state in target.operators.items()
        }
        return msgspec.structs.replace(
            target,
            flow=self.flow,
            parent=None,
            run=run.run,
            started_us=now_us,
            decided_us=now_us,
            history=((target.epoch, run.token),),
            inputs={
                uid: InputRange(start=at, end=at, rows=0)
                for uid, at in self._positions(target).items()
            },
            operators=operators,
            outputs=self._outputs(target),
            # Cuts and resets are counted anew.
            markers=(),
            borne=(),
            heard=None,
            reset=0,
            metrics={},
        )

    def path(self, path: str) -> str:
        """Return where the fork has a file of its parent."""
        if self.parent is None:
            return own_path(path)
        return path if parent_in(path) else f"{PARENTS}{self.parent}/{path}"

    def _positions(self, target: Manifest) -> dict[str, Any]:
        """Return where the sources are: those of channels before what is in flight."""
        found = {uid: span.end for uid, span in target.inputs.items()}
        ends = {
            b.source: b.span for b in self.between if b.span.reader == target.region
        }
        for uid, _, _, _ in channel_ends(target):
            if uid in ends:
                span = ends[uid]
                is_empty = span.first == span.end
                epoch = span.end if is_empty else span.end - 1
                # By whom the epoch before was decided is not known in the fork.
                place = {k: v for k, v in found[uid].items() if k != "token"}
                found[uid] = {**place, "epoch": epoch}
        return found

    def _outputs(self, target: Manifest) -> Mapping[str, SinkOutput]:
        """Return the channels of a region, with what is in flight in them."""
        flying = {
            b.span.channel: b for b in self.between if b.span.writer == target.region
        }
        return {
            uid: msgspec.structs.replace(
                output,
                tokens=self._tokens(flying[uid]),
                rows=flying[uid].span.rows,
                columns=_columns(output, flying[uid]),
                run="",
                before=None,
            )
            for uid, output in target.outputs.items()
            if output.kind == CHANNEL and uid in flying
        }

    def _tokens(self, flying: Between) -> tuple[Any, ...]:
        return tuple(
            {**token, "path": self.path(token["path"])} for _, token in flying.files
        )


def _columns(output: SinkOutput, flying: Between) -> ChannelColumns | None:
    """Return what the rows in flight look like: by key if all files are, alike."""
    columns = output.columns
    if columns is None:
        return None
    sent = [each.columns for each in flying.outputs.values() if each.tokens]
    if all(each is not None and each.keys == columns.keys for each in sent):
        return columns
    return msgspec.structs.replace(columns, keys="")
