"""Going back: a new epoch whose state is that of an old one (format §6.1).

Epoch numbers only grow and a manifest is never replaced, so whoever has seen an epoch
(a zombie, a reader, a sink) never sees something else under the same number. The put of
the new manifest is the one decision; before it nothing has changed, and after it the
next start does whatever is left to do.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core import faults
from riverlock.core.errors import (
    FencedError,
    InvalidConfigError,
    SnapshotError,
    StorageNotFoundError,
)
from riverlock.core.guarantees import AT_MOST_ONCE, EXACTLY_ONCE
from riverlock.snapshot.claims import claim, describe, release
from riverlock.snapshot.format.records import CHANNEL, InputRange, SinkOutput
from riverlock.snapshot.format.run_status import Status
from riverlock.snapshot.format.sealed import read_hint
from riverlock.snapshot.retention.lease import leased
from riverlock.snapshot.timeline import (
    given,
    is_restored,
    restored_history,
    spans,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest, Run
    from riverlock.snapshot.timeline import Span

__all__ = [
    "Restore",
    "SinkRestore",
    "is_open",
    "newest_readable",
    "plan_restore",
    "restore",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkRestore:
    """What happens to a sink's output of the epochs that are undone.

    Attributes:
        uid: The sink.
        kind: Its kind.
        rows: Rows that it got in these epochs, as far as they are retained.
        roots: Output directories of these epochs, for a file sink.
        is_withdrawn: Whether they are moved out of readers' sight.
    """

    uid: str
    kind: str
    rows: int
    roots: tuple[str, ...]
    is_withdrawn: bool

    @property
    def says(self) -> str:
        """What happens, in words."""
        again = "what is read again is written again, under new epoch numbers"
        is_one = self.rows == 1
        if self.is_withdrawn:
            rows = "1 row is" if is_one else f"{self.rows} rows are"
            return (
                f"{rows} withdrawn: folders are moved to"
                f" _riverlock/withdrawn of the output directory; {again}"
            )
        if self.kind == CHANNEL:
            return "the region that reads it goes on from the snapshot"
        if self.kind == "files":
            rows = "1 row stays" if is_one else f"{self.rows} rows stay"
            return f"{rows} in sight; {again}"
        rows = (
            "it received 1 row, which stays"
            if is_one
            else (f"it received {self.rows} rows, which stay")
        )
        return f"{rows}; {again}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """A way back, before it is taken.

    Attributes:
        target: The epoch whose state, positions, timers and watermarks come back.
        newest: The newest epoch now that can be read.
        last: The greatest epoch number that exists.
        undone: Epochs that will no longer have led to the state.
        redone: Epochs that an earlier restore had undone, and that count again.
        sinks: What happens to output.
        is_open: Whether the newest epoch has output that not all sinks are known to
            have. What they do not have, they will not get.
    """

    target: Manifest
    newest: Manifest
    last: int
    undone: tuple[Span, ...]
    redone: tuple[Span, ...]
    sinks: tuple[SinkRestore, ...]
    is_open: bool = False

    @property
    def epoch(self) -> int:
        """The number that the restored epoch will have."""
        return self.last + 1

    @property
    def is_done(self) -> bool:
        """Whether the newest epoch is the target, or one that went back to it."""
        target, newest = self.target.epoch, self.newest
        is_same = is_restored(newest) and newest.parent == target
        return newest.epoch == self.last and (newest.epoch == target or is_same)


def plan_restore(
    catalog: Catalog, target: Manifest, *, keep_output: bool = False
) -> Restore:
    """Return what going back to an epoch would do; do nothing.

    Args:
        catalog: The store.
        target: The epoch.
        keep_output: Whether file sinks keep the output of undone epochs in sight.

    Manifests that cannot be read do not stand in the way.

    Raises:
        InvalidConfigError: The epoch was left before its sinks had its output.
    """
    _check_closed(catalog, target)
    last = catalog.epochs()[-1]
    newest = newest_readable(catalog) or target
    # Epochs after the newest that can be read are damaged, and undone too.
    undone = without([*spans(newest), (newest.epoch + 1, last)], spans(target))
    manifests = list(_readable(catalog, undone))
    outputs: dict[str, list[SinkOutput]] = {}
    for manifest in (target, *manifests):
        for uid, output in manifest.outputs.items():
            outputs.setdefault(uid, []).append(output)
    later: dict[str, int] = {}
    for manifest in manifests:
        for uid, output in manifest.outputs.items():
            later[uid] = later.get(uid, 0) + output.rows
    return Restore(
        target=target,
        newest=newest,
        last=last,
        undone=tuple(undone),
        redone=tuple(without(spans(target), spans(newest))),
        sinks=tuple(
            SinkRestore(
                uid=uid,
                kind=found[-1].kind,
                rows=later.get(uid, 0),
                roots=_roots(found),
                is_withdrawn=found[-1].kind == "files" and not keep_output,
            )
            for uid, found in outputs.items()
        ),
        is_open=is_open(catalog, newest),
    )


def is_open(catalog: Catalog, newest: Manifest | None) -> bool:
    """Tell whether a sink may lack output of the newest epoch."""
    if (
        newest is None
        or is_restored(newest)
        # Nobody will give it to them.
        or newest.guarantee == AT_MOST_ONCE
        or not any(o.tokens or o.replaces for o in newest.outputs.values())
    ):
        return False
    try:
        status = read_hint(catalog.storage.get(catalog.paths.status), Status)
    except StorageNotFoundError:
        return True
    committed = None if status is None else status.committed
    return committed is None or committed < newest.epoch


def _check_closed(catalog: Catalog, target: Manifest) -> None:
    """Refuse an epoch whose output nobody would commit any more.

    Whoever went back from it has noted that; later epochs have taken its turn in the
    sinks.
    """
    try:
        after = catalog.manifest(target.epoch + 1)
    except SnapshotError:
        return
    if is_restored(after) and after.metrics.get("restored", {}).get("open"):
        raise InvalidConfigError(
            f"restore of {catalog.storage.uri} to epoch {target.epoch}",
            expected="an epoch whose output all sinks are known to have",
            found="one that was left before they had it",
            hint=f"nothing was changed; go to epoch {target.parent}, from which its"
            " input is read again",
        )


def newest_readable(catalog: Catalog) -> Manifest | None:
    """Return the newest manifest that is not damaged; None: there is none."""
    for epoch in reversed(catalog.epochs()):
        with suppress(SnapshotError):
            return catalog.manifest(epoch)
    return None


def _readable(catalog: Catalog, chosen: list[Span]) -> Iterator[Manifest]:
    for epoch in catalog.epochs():
        if any(a <= epoch <= b for a, b in chosen):
            with suppress(SnapshotError):
                yield catalog.manifest(epoch)


def _roots(outputs: list[SinkOutput]) -> tuple[str, ...]:
    tokens = [t for o in outputs for t in o.tokens if isinstance(t, dict)]
    return tuple(dict.fromkeys(t["root"] for t in tokens if t.get("root")))


def restore(
    catalog: Catalog,
    plan: Restore,
    *,
    now_us: int,
    why: str = "restore",
    reset: int | None = None,
) -> Manifest:
    """Go back; return the new newest manifest.

    Args:
        catalog: The store.
        plan: What was planned.
        now_us: The present.
        why: For people.
        reset: The number of the reset that the region takes up, if it is one (§6.5).

    Raises:
        FencedError: The flow runs, or began to; nothing was changed.
        InvalidConfigError: It has continued since the plan was made; the same.
        SnapshotNotFoundError: The target is no longer retained; the same.
    """
    if plan.is_done:
        return plan.newest
    run = claim(catalog, now_us=now_us)
    try:
        faults.hit("V1")
        with leased(catalog, plan.target.epoch, before=plan.epoch):
            made = _manifest(plan, run, now_us=now_us, why=why)
            number = max(made.reset, reset or 0)
            made = msgspec.structs.replace(made, reset=number)
            return _decide(catalog, plan, run, made)
    finally:
        release(catalog, run)


def _decide(catalog: Catalog, plan: Restore, run: Run, made: Manifest) -> Manifest:
    if catalog.epochs()[-1] != plan.last:
        raise _gone_on(catalog, plan)
    fencing = catalog.run(run.run + 1)
    if fencing is not None:
        owner = describe(fencing)
        raise FencedError(store=catalog.storage.uri, run=run.run, owner=owner)
    faults.hit("V2")
    # A zombie may still decide its epoch: one of the two manifests wins.
    if not catalog.decide(made):
        raise _gone_on(catalog, plan)
    faults.hit("V3")
    return made


def _gone_on(catalog: Catalog, plan: Restore) -> InvalidConfigError:
    return InvalidConfigError(
        f"restore of {catalog.storage.uri}",
        expected=f"epoch {plan.last} to be the newest, as in the plan",
        found=f"epoch {catalog.epochs()[-1]}",
        hint="nothing was changed; look at the new plan",
    )


def _manifest(plan: Restore, run: Run, *, now_us: int, why: str) -> Manifest:
    target = plan.target
    return msgspec.structs.replace(
        target,
        epoch=plan.epoch,
        parent=target.epoch,
        run=run.run,
        started_us=now_us,
        decided_us=now_us,
        history=restored_history(target, epoch=plan.epoch, token=run.token),
        # Parameters are those of the target: later requests are not taken up again.
        requests=max(target.requests, plan.newest.requests),
        inputs={
            uid: InputRange(start=r.end, end=r.end, rows=0)
            for uid, r in target.inputs.items()
        },
        outputs={s.uid: _output(s, plan) for s in plan.sinks},
        # Markers stay with the rows that they come after.
        markers=(),
        borne=(),
        reset=max(target.reset, plan.newest.reset),
        # It has no rows, but orders that sinks must carry out.
        guarantee=EXACTLY_ONCE,
        metrics={
            "restored": {
                "why": why,
                "from": target.epoch,
                "undone": list(plan.undone),
                "open": plan.is_open,
            }
        },
    )


def _output(sink: SinkRestore, plan: Restore) -> SinkOutput:
    known = plan.target.outputs.get(sink.uid)
    return SinkOutput(
        kind=sink.kind,
        tokens=_tokens(sink, plan),
        place="" if known is None else known.place,
        before=given(plan.target, sink.uid),
        watermark_us=None if known is None else known.watermark_us,
        columns=None if known is None else known.columns,
        is_back=known is not None and known.is_back,
    )


def _tokens(sink: SinkRestore, plan: Restore) -> tuple[Any, ...]:
    """Return what a file sink must move.

    If the newest epoch is a restored one, its order may not have been carried out yet:
    ours repeats it. Epochs that count again come back in any case.
    """
    if sink.kind != "files":
        return ()
    undone = plan.undone if sink.is_withdrawn else ()
    before = _ordered(plan.newest, sink.uid)
    order = {
        "withdraw": without([*before["withdraw"], *undone], list(plan.redone)),
        "reinstate": without([*before["reinstate"], *plan.redone], list(plan.undone)),
    }
    if not any(order.values()):
        return ()
    return tuple({"root": r, **order} for r in sink.roots) or (order,)


def _ordered(newest: Manifest, uid: str) -> dict[str, list[Span]]:
    """Return what an epoch orders to be moved."""
    found: dict[str, list[Span]] = {"withdraw": [], "reinstate": []}
    output = newest.outputs.get(uid)
    # All tokens of a sink say the same, each of another directory.
    for token in () if output is None else output.tokens[:1]:
        if isinstance(token, dict) and "withdraw" in token:
            for name, spans_found in found.items():
                spans_found += [(a, b) for a, b in token.get(name) or ()]
    return found
