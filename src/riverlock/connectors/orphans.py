"""Output that waits for a sink that the flow no longer has, or has elsewhere by now.

A run may die between its decision and the commits. What it decided was for the sinks of
its own code; the next code may give them other uids, other places, or none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.connectors.base.sink import PASSING, place_of
from riverlock.connectors.delta.sink import DeltaCommitter, DeltaSink
from riverlock.connectors.files.listing import is_owned, is_withdrawal
from riverlock.connectors.files.sink import FileSink
from riverlock.core.errors import CommitRejectedError, InvalidConfigError
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from riverlock.connectors.base.sink import Sink
    from riverlock.snapshot.format.records import Manifest, SinkOutput

__all__ = ["Unfinished", "unfinished"]

# What was decided says where it belongs, whatever the flow has by now.
_COMPLETED = ("files", "delta")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """What a start does about output of the newest epoch.

    Attributes:
        epoch: The newest epoch; -1 before the first.
        orphans: Output of sinks that the flow no longer has, to be completed.
        settled: Sinks of the flow that do not get this epoch: it was decided for
            another place, which has it.
    """

    epoch: int = -1
    orphans: Mapping[str, SinkOutput] = field(default_factory=dict)
    settled: frozenset[str] = frozenset()

    def complete(self, flow: str) -> None:
        """Commit what waits for sinks that the flow no longer has.

        Args:
            flow: The id of the store's flow.

        Raises:
            CommitRejectedError: Their place is gone.
            SinkError, StorageError: It did not work; the next start tries again.
        """
        for uid, output in self.orphans.items():
            _complete(flow, uid, self.epoch, output)


def unfinished(
    newest: Manifest | None,
    sinks: Mapping[str, Sink],
    *,
    is_open: bool,
    abandoned: Collection[tuple[str, int]] = (),
) -> Unfinished:
    """Return what to do about output of the newest epoch.

    Args:
        newest: The newest manifest.
        sinks: The sinks of the flow, by uid.
        is_open: Whether a sink may lack output of that epoch.
        abandoned: Sinks whose output of an epoch the user gives up, with that epoch.

    Raises:
        InvalidConfigError: Rows wait for a sink that the flow does not have, and nobody
            else can commit them; or an epoch is given up that is yet to come.
    """
    _check_abandoned(newest, abandoned)
    if newest is None:
        return Unfinished()
    orphans: dict[str, SinkOutput] = {}
    settled: set[str] = set()
    for uid, output in _waiting(newest):
        sink = sinks.get(uid)
        is_given_up = (uid, newest.epoch) in abandoned
        if is_given_up or (not is_open and _is_elsewhere(sink, output)):
            settled.add(uid)
        elif sink is not None and (sink.kind != output.kind or commits(sink, output)):
            continue  # of another kind: told on its own
        elif output.kind in PASSING:
            settled.add(uid)
        elif sink is None and output.kind in _COMPLETED:
            orphans[uid] = output
        else:
            raise _refused(newest.epoch, uid, output, sink)
    return Unfinished(
        epoch=newest.epoch, orphans=orphans, settled=frozenset(settled & set(sinks))
    )


def _check_abandoned(
    newest: Manifest | None, abandoned: Collection[tuple[str, int]]
) -> None:
    """Refuse to give up what nobody has seen yet: the line was about another time."""
    last = -1 if newest is None else newest.epoch
    for uid, epoch in sorted(abandoned):
        if epoch > last:
            raise InvalidConfigError(
                f"flow.abandoned({uid!r}, epoch={epoch})",
                expected="an epoch that the store has",
                found=f"{last} as its newest" if newest else "a store without epochs",
                hint="nothing was changed; it was about another store, or about epochs"
                " that this one no longer has: remove it from the code",
            )


def _is_elsewhere(sink: Sink | None, output: SinkOutput) -> bool:
    """Tell whether a place has output that the flow no longer writes to."""
    return sink is None or (bool(_place(output)) and _place(output) != place_of(sink))


def commits(sink: Sink, output: SinkOutput) -> bool:
    """Tell whether a sink commits what was decided for a sink of its uid and kind."""
    decided = _place(output)
    if not decided or sink.kind in _COMPLETED:
        return True
    # An address may change, and the database behind it say that it is the same.
    if (table := getattr(sink, "table", None)) is not None:
        return decided.endswith(f" {table}")
    return decided == place_of(sink)


def _waiting(newest: Manifest) -> Iterable[tuple[str, SinkOutput]]:
    for uid, output in newest.outputs.items():
        if (output.tokens or output.replaces) and not is_withdrawal(output.tokens):
            yield uid, output


def _place(output: SinkOutput) -> str:
    """Return where a sink wrote; older writers have it in tokens of some kinds."""
    tokens = [t for t in output.tokens if isinstance(t, dict)]
    told = next((t["target"] for t in tokens if "target" in t), "")
    return output.place or str(told)


def _refused(
    epoch: int, uid: str, output: SinkOutput, sink: Sink | None
) -> InvalidConfigError:
    rows = "1 row" if output.rows == 1 else f"{output.rows} rows"
    place = _place(output)
    was = f"kind {output.kind!r}, {place}" if place else f"kind {output.kind!r}"
    return InvalidConfigError(
        f"epoch {epoch} of the store",
        expected=f"sink {uid!r} ({was}), which may still lack its {rows} of that epoch",
        found="no sink of that uid" if sink is None else f"{place_of(sink)} instead",
        hint="nothing was written; start once with the sink as it was, so that it gets"
        " the rows, and change it then; or, if they are to be abandoned, say"
        f" flow.abandoned({uid!r}, epoch={epoch})",
    )


def _complete(flow: str, uid: str, epoch: int, output: SinkOutput) -> None:
    if output.kind == "delta":
        token = output.tokens[0] if output.tokens else {"root": output.place}
        by = tuple(token.get("partition", {}))
        DeltaCommitter(
            sink=DeltaSink(path=token["root"], partition_by=by),
            schema=None,
            replaces=output.replaces,
        ).complete(flow, uid, epoch, output)
        return
    from riverlock.connectors.builtin_committers import FileCommitter
    from riverlock.connectors.files.object_files import ObjectFileCommitter

    root = output.tokens[0].get("root", output.place)
    mine = {"flow": flow, "sink": uid}
    if not root or not is_owned(open_storage(root), mine):
        raise CommitRejectedError(
            uid,
            epoch=epoch,
            what=f"it was decided to go to {root or 'an unknown directory'},"
            " which no longer exists; put it back, or, if the rows are to be given"
            f" up, say flow.abandoned({uid!r}, epoch={epoch})",
        )
    sink = FileSink(path=root, format="json")
    if "://" in root:
        ObjectFileCommitter(sink, mine=mine).commit(epoch, output)
    else:
        FileCommitter(sink).commit(epoch, output)
