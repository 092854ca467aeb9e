"""One snapshot over several flows that are joined by channels (format §6.6).

Every store has a proposal of the cut, with a common id. When all have it, each is told
that it has begun: from then on markers travel, within flows and between them. The
first store is the *head*: one put-if-absent there decides. Before it the epochs are
held by leases in every store; after it each store gets the name, or learns that there
is none, from whoever sees the decision first.
"""

from __future__ import annotations

import time
import uuid
from itertools import islice
from typing import TYPE_CHECKING

from riverlock.core import faults
from riverlock.core.errors import (
    InvalidConfigError,
    SnapshotAbandonedError,
)
from riverlock.core.times import END_US
from riverlock.snapshot.catalog import Catalog
from riverlock.snapshot.format.cut_log import CutLog
from riverlock.snapshot.format.records import (
    JOINED_FEATURE,
    JointCut,
    LeaseRecord,
    Named,
)
from riverlock.snapshot.format.store_layout import LEASES, lease_path, records
from riverlock.snapshot.joint.joint_records import CutDecided
from riverlock.snapshot.verbs.cut import DEFAULT_PROTOCOL, TIMEOUT_US, check_protocol
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from riverlock.snapshot.format.records import CutProposal
    from riverlock.snapshot.joint.joint_records import CutPart
    from riverlock.storage.base import Storage

__all__ = ["hold_parts", "let_go_settled", "settle", "stores_of", "take_joint_cut"]

_POLL_SECONDS = 0.02
# A flow that runs says that a cut takes too long; if none runs, we do.
_PATIENCE_US = 5 * 1_000_000


def stores_of(joint: JointCut) -> dict[str, Storage]:
    """Return the stores of the flows of a cut, by the flow's id."""
    return {flow: open_storage(store) for flow, store in joint.flows.items()}


def take_joint_cut(  # noqa: PLR0913 - keywords, each with a default
    catalogs: Sequence[Catalog],
    name: str,
    *,
    protocol: str = DEFAULT_PROTOCOL,
    now_us: int,
    timeout_us: int = TIMEOUT_US,
    note: str = "",
) -> tuple[Named, ...]:
    """Ask several flows, which must run, for one snapshot; return each store's record.

    Args:
        catalogs: The stores; the first one decides.
        name: Of the snapshot, in every store.
        protocol: How regions agree on the cut.
        now_us: The present.
        timeout_us: How long regions may take.
        note: For people.

    Raises:
        InvalidConfigError: The name is taken, there is no such protocol, or a flow
            shares no channel with others.
        SnapshotAbandonedError: A region did not answer in time.
    """
    check_protocol(protocol)
    stores = {c.flow().id: c.storage for c in catalogs}
    _check_joined(catalogs, stores, name)
    joint = JointCut(
        id=uuid.uuid4().hex,
        head=next(iter(stores)),
        flows={flow: storage.uri for flow, storage in stores.items()},
    )
    proposals = {
        flow: CutLog(storage).propose(
            name,
            protocol=protocol,
            asked_us=now_us,
            timeout_us=timeout_us,
            note=note,
            joint=joint,
        )
        for flow, storage in stores.items()
    }
    numbers = {flow: proposal.number for flow, proposal in proposals.items()}
    for flow, storage in stores.items():
        CutLog(storage).begin(numbers[flow], numbers)
    decision = _decision(stores[joint.head], proposals[joint.head], timeout_us)
    for flow, storage in stores.items():
        settle(Catalog(storage), proposals[flow], decision)
    if not decision.parts:
        uri = stores[joint.head].uri
        raise SnapshotAbandonedError(name, store=uri, why=decision.why)
    taken = [CutLog(stores[flow]).taken(p) for flow, p in proposals.items()]
    return tuple(named for named in taken if named is not None)


def _check_joined(
    catalogs: Sequence[Catalog], stores: Mapping[str, Storage], name: str
) -> None:
    if len(catalogs) < 2 or len(stores) < len(catalogs):
        raise InvalidConfigError(
            "a snapshot of several flows",
            expected="at least two stores, each of another flow",
            found=", ".join(c.storage.uri for c in catalogs) or "none",
        )
    for catalog in catalogs:
        if JOINED_FEATURE not in catalog.flow().features:
            raise InvalidConfigError(
                f"a snapshot of several flows, {catalog.storage.uri} among them",
                expected="flows that share channels: publish(), rl.sources.channel()",
                found=f"flow {catalog.flow().name!r}, which does not",
                hint="take a snapshot of it alone",
            )
        catalog.check_name(name)


def _decision(head: Storage, proposal: CutProposal, timeout_us: int) -> CutDecided:
    """Wait for what becomes of a cut; give it up if nobody answers."""
    cuts, joint = CutLog(head), proposal.joint
    assert joint is not None
    limit = time.monotonic() + (timeout_us + _PATIENCE_US) / 1_000_000
    while True:
        found = cuts.decision(joint.id)
        if found is not None:
            return found
        if time.monotonic() > limit:
            why = f"no region of {head.uri} runs"
            late_us = proposal.asked_us + timeout_us
            return cuts.decide(
                CutDecided(id=joint.id, decided_us=late_us, parts={}, why=why)
            )
        time.sleep(_POLL_SECONDS)


def hold_parts(joint: JointCut, parts: Mapping[str, CutPart]) -> None:
    """Keep the epochs of a cut in every store, until it is settled there.

    Raises:
        SnapshotNotFoundError: One is gone.
    """
    for flow, storage in stores_of(joint).items():
        for region, epoch in _epochs(parts[flow]):
            lease = f"cut-{joint.id}-{region}-{epoch}"
            record = LeaseRecord(
                id=lease,
                regions={region: epoch},
                expires_us=END_US,
                holder="a snapshot of several flows that is being decided",
            )
            catalog, path = Catalog(storage, region), lease_path(lease)
            if not catalog.hold(path, record, epoch=epoch):
                catalog.check_held(path, epoch=epoch)
    faults.hit("V2")


def settle(catalog: Catalog, proposal: CutProposal, decision: CutDecided) -> None:
    """Have a store follow the decision about a cut; may be repeated."""
    cuts, joint = CutLog(catalog.storage), proposal.joint
    assert joint is not None
    part = decision.parts.get(catalog.flow().id)
    if cuts.is_settled(proposal):
        pass  # only its leases may be left
    elif part is None:
        cuts.give_up(proposal.number, decision.why)
    elif not _name(catalog, proposal, part, decision):
        # The leases stay: the other stores have the snapshot.
        cuts.give_up(proposal.number, f"the name {proposal.name!r} was taken meanwhile")
        return
    faults.hit("V4")
    _let_go(catalog.storage, joint)


def let_go_settled(joint: JointCut, numbers: Mapping[str, int]) -> None:
    """Give back leases where the cut is settled: two may have held its epochs."""
    for flow, storage in stores_of(joint).items():
        cuts = CutLog(storage)
        if all(cuts.is_settled(p) for p in islice(cuts.after(numbers[flow] - 1), 1)):
            _let_go(storage, joint)


def _let_go(storage: Storage, joint: JointCut) -> None:
    prefix = lease_path(f"cut-{joint.id}").removesuffix(".json")
    for entry in records(storage.list(LEASES)):
        if entry.path.startswith(prefix):
            storage.delete(entry.path)


def _name(
    catalog: Catalog, proposal: CutProposal, part: CutPart, decision: CutDecided
) -> bool:
    """Give the snapshot its name in a store; False if another one has it."""
    named = Named(
        name=proposal.name,
        regions=part.regions,
        created_us=decision.decided_us,
        note=proposal.note,
        protocol=proposal.protocol,
        cut=proposal.number,
        asked_us=proposal.asked_us,
        in_flight=part.in_flight,
        joint=proposal.joint,
    )
    try:
        catalog.pin_all(named)
    except InvalidConfigError:
        # Another process may have just written the same.
        return CutLog(catalog.storage).taken(proposal) is not None
    return True


def _epochs(part: CutPart) -> Iterator[tuple[str, int]]:
    yield from part.regions.items()
    for span in part.in_flight:
        yield from ((span.writer, epoch) for epoch in range(span.first, span.end))
