"""``Program``: what a flow consists of so far, which is all that engines know about it.

``rl.Flow`` is the door: it fills a program and hands it to whoever runs, checks,
replays or draws it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from riverlock.core.errors import InvalidFlowError
from riverlock.core.guarantees import EXACTLY_ONCE
from riverlock.core.ids import MAIN_REGION, check_name
from riverlock.program.graph import Keyed, Output, Read, RowWise, Write, inputs_of
from riverlock.program.meaning import settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.sink import Sink
    from riverlock.core.guarantees import Guarantee
    from riverlock.flow.stream import Stream
    from riverlock.program.graph import Node
    from riverlock.program.loops import Loop
    from riverlock.program.region_options import Pace

__all__ = ["Program"]

MAX_KEY_GROUPS = 32_768


class Program:
    """The nodes of a flow, their uids, and what happened to nodes that it had before.

    Attributes:
        name: Of the flow.
        key_groups: Upper bound of the parallelism.
        on_error: Where records go that make user code raise, unless a step has its own
            sink.
        generated: Uids that the user has not given; which uid to give, if they are made
            from another.
        streams: Sources and declared event times by uid: what ``sql`` finds by name.
        writes: Streams that end in sinks.
        keyed: Keyed work, which runs even if nobody reads its output: its state is a
            result.
        settings: What each process was made with, by uid.
        renames: Uids of operators that older snapshots have, and those of today.
        retired: Uids of operators that older snapshots have, and nobody needs.
        retired_columns: Columns that older epochs read and nobody needs, each with the
            uid of its source.
        abandoned: Sinks whose rows of an epoch are given up: uid and epoch.
        guarantees: What regions promise, where that was said.
        loops: Loops by uid; of a part, those that it reads.
        paces: Options of regions, by name.
        region: Which part of the flow this is (``regions.part_of``).
        is_part: Whether the flow has channels: other regions, or loops.
        is_joined: Whether the flow shares channels with other flows.
        channel_keys: Of a part: the columns by which channels are read at once.
    """

    def __init__(self, name: str, *, key_groups: int, on_error: Sink | None) -> None:
        """Begin without any node.

        Raises:
            InvalidFlowError: Name or number are out of bounds.
        """
        self.name = check_name("flow name", name)
        if not 1 <= key_groups <= MAX_KEY_GROUPS:
            raise InvalidFlowError(
                f"key_groups of flow {name!r}",
                expected=f"1 to {MAX_KEY_GROUPS}",
                found=str(key_groups),
            )
        self.key_groups = key_groups
        self.on_error = on_error
        self.generated: dict[str, str] = {}
        self.streams: dict[str, Stream] = {}
        self.writes: list[Write] = []
        self.keyed: list[Keyed] = []
        self.settings: dict[str, str] = {}
        self.renames: dict[str, str] = {}
        self.retired: frozenset[str] = frozenset()
        self.retired_columns: frozenset[tuple[str, str]] = frozenset()
        self.abandoned: frozenset[tuple[str, int]] = frozenset()
        self.guarantees: dict[str, Guarantee] = {}
        self.loops: dict[str, Loop] = {}
        self.paces: dict[str, Pace] = {}
        self.region = MAIN_REGION
        self.is_part = False
        self.is_joined = False
        self.channel_keys: Mapping[str, tuple[str, ...]] = {}
        self._uids: dict[str, str] = {}

    @property
    def guarantee(self) -> Guarantee:
        """What this part promises about rows that leave it."""
        return self.guarantees.get(self.region, EXACTLY_ONCE)

    def add(self, node: Keyed) -> Output:
        """Add keyed work, and the sink of what its user code fails at.

        Returns its main output.
        """
        self.keyed.append(node)
        self.settings[node.uid] = settings_of(node.process)
        self.add_dead_letters(node)
        return Output(input=node, name="main")

    def add_dead_letters(self, node: Keyed | RowWise) -> None:
        """Add the sink of the records that make the code of a node raise."""
        if node.on_error is not None:
            dead = Output(input=node, name="dead")
            uid = self.take_uid(f"{node.uid}-dead", "dead", of=node.uid)
            self.writes.append(Write(uid=uid, input=dead, sink=node.on_error))

    def take_uid(self, uid: str | None, kind: str, *, of: str | None = None) -> str:
        """Return a uid for a node, made from kind and order unless the user gave one.

        Args:
            uid: The uid that the user gave.
            kind: What the node is.
            of: The uid of another node, if this one was made from it.

        Raises:
            InvalidFlowError: It is taken, or not a name.
        """
        is_made = uid is None
        if uid is None:
            number = 1
            while f"{kind}-{number}" in self._uids:
                number += 1
            uid = f"{kind}-{number}"
        check_name("uid", uid)
        if uid in self._uids:
            raise InvalidFlowError(
                "uid=",
                expected="a name that nothing else in the flow has",
                found=f"{uid!r}, which a {self._uids[uid]} has",
                hint="give one of them another uid=",
            )
        self._uids[uid] = kind
        if is_made:
            self.generated[uid] = uid
        elif of in self.generated:
            self.generated[uid] = self.generated[of]
        return uid

    def mark(self) -> tuple[dict[str, str], dict[str, str], list[Keyed]]:
        """Return where the program is, to come back to if a step is refused."""
        return dict(self._uids), dict(self.generated), list(self.keyed)

    def go_back(self, mark: tuple[dict[str, str], dict[str, str], list[Keyed]]) -> None:
        """Forget the uids and the keyed work that came after a mark."""
        self._uids, self.generated, self.keyed = mark

    @property
    def nodes(self) -> list[Node | Write]:
        """All nodes that lead to state or to a sink, inputs first."""
        order: dict[Node | Write, None] = {}

        def walk(node: Node | Write) -> None:
            if node not in order:
                for each in inputs_of(node):
                    walk(each)
                order[node] = None

        roots: list[Node | Write] = [*self.keyed, *self.writes]
        for root in roots:
            walk(root)
        return list(order)

    def find(self, kind: type) -> list[Any]:
        """Return the nodes of a kind, inputs first."""
        return [n for n in self.nodes if isinstance(n, kind)]

    def describe(self) -> list[dict[str, Any]]:
        """Return the graph as plain data, for people, status and fingerprints."""
        nodes = self.nodes
        numbers = {node: number for number, node in enumerate(nodes)}
        return [
            {
                "number": numbers[node],
                "kind": type(node).__name__.lower(),
                "uid": getattr(node, "uid", None),
                "inputs": [numbers[i] for i in inputs_of(node)],
                "detail": _detail(node),
            }
            for node in nodes
        ]


def _detail(node: object) -> str:
    match node:
        case Read():
            return node.source.kind
        case Write():
            return node.sink.kind
        case Keyed():
            work = type(node.process).__name__ if node.process else "agg"
            return f"{work} by {', '.join(node.keys)}"
        case RowWise():
            return node.operation
        case _:
            operation = getattr(node, "operation", None)
            return str(operation or getattr(node, "column", None) or "")
