"""``Flow``: where a program begins and is run."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.source import Source
from riverlock.core.errors import InvalidFlowError
from riverlock.core.ids import check_name
from riverlock.flow.stream import Stream
from riverlock.program.graph import Keyed, Output, Read, RowWise, Write
from riverlock.program.meaning import settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta
    from typing import Unpack

    from pyspark.sql import SparkSession

    from riverlock.connectors.base.sink import Sink
    from riverlock.driver.handle import Handle
    from riverlock.driver.run_options import RunKeywords
    from riverlock.program.graph import Node
    from riverlock.replay.report import EpochReplay, Replay
    from riverlock.replay.stepping import Stepper
    from riverlock.snapshot.format.run_status import Status

__all__ = ["Flow"]

MAX_KEY_GROUPS = 32_768


class Flow:
    """A dataflow program: build it from sources to sinks, then run it on a store.

    Example:
        >>> import riverlock as rl
        >>> flow = rl.Flow("shop")
        >>> orders = flow.read(
        ...     rl.sources.files("in/", format="json", schema="user string")
        ... )
        >>> _ = orders.key_by("user").count().write(rl.sinks.memory())
    """

    def __init__(
        self, name: str, *, key_groups: int = 128, on_error: Sink | None = None
    ) -> None:
        """Name the flow.

        Args:
            name: Part of every status and manifest; one store holds one flow.
            key_groups: Upper bound of the parallelism for ever; fixed by the store.
            on_error: Where records go that make user code raise. Default: nowhere, the
                epoch fails and names the record.

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
        self._uids: dict[str, str] = {}
        # Uids that nobody has given; which uid to give, if they are made from another.
        self.generated: dict[str, str] = {}
        # Sources and declared event times by uid: what sql() finds by name.
        self.streams: dict[str, Stream] = {}
        self.writes: list[Write] = []
        # Keyed work runs even if nobody reads its output: its state is a result.
        self.keyed: list[Keyed] = []
        # What each process was made with, by uid.
        self.settings: dict[str, str] = {}
        # What became of operators that older snapshots have.
        self.renames: dict[str, str] = {}
        self.retirements: frozenset[str] = frozenset()
        # Sinks whose rows of an epoch are given up: uid and epoch.
        self.forgone: frozenset[tuple[str, int]] = frozenset()

    def read(self, source: Source, *, uid: str | None = None) -> Stream:
        """Begin a stream at a source.

        Raises:
            InvalidFlowError: It is no source, or the uid is taken.
        """
        if not isinstance(source, Source):
            raise InvalidFlowError(
                "source of flow.read",
                expected="something of rl.sources",
                found=repr(source),
            )
        node = Read(uid=self.take_uid(uid, source.kind), source=source)
        self.streams[node.uid] = Stream(self, node, source.schema)
        return self.streams[node.uid]

    def renamed(self, uids: Mapping[str, str]) -> Flow:
        """Say which operators had another uid: ``{"old": "new"}``; state follows.

        May go once an epoch of the new code is decided.

        Raises:
            InvalidFlowError: A uid is named twice.
        """
        both = {**self.renames, **uids}
        if len(set(both.values())) != len(both):
            raise InvalidFlowError(
                "flow.renamed",
                expected="each new uid once",
                found=", ".join(f"{o} -> {n}" for o, n in both.items()),
            )
        self.renames = both
        return self

    def retired(self, *uids: str, epoch: int | None = None) -> Flow:
        """Say which operators are gone for good: new epochs leave their state out.

        Also which columns of sources are not needed any more: ``"source.column"``.
        Without it a start refuses to orphan state, or to go on without a column that
        user code was given. Earlier epochs keep it. May go once an epoch of the new
        code is decided.

        Args:
            uids: Operators or columns; with an epoch, sinks.
            epoch: Give up the rows of this epoch that wait for these sinks; a start
                that is refused for such rows names it. No other epoch is concerned.
        """
        if epoch is None:
            self.retirements |= set(uids)
        else:
            self.forgone |= {(uid, epoch) for uid in uids}
        return self

    def sql(
        self,
        query: str,
        /,
        *,
        uid: str | None = None,
        lateness: str | timedelta | None = None,
        **tables: Any,
    ) -> Stream:
        """Query streams: ``sql("SELECT * FROM events WHERE n > 3", events=stream)``.

        Spark runs what can be told row by row; ``GROUP BY`` with keys, ``window(...)``
        or ``session_window(...)`` becomes ``key_by``, ``window`` and ``agg``. Spark is
        started, as for a run, to parse the query.

        Args:
            query: One SELECT, as Spark writes it.
            uid: Stable name of its state; keep it when the query changes. Of several
                aggregates the outer one has it, others are numbered: ``uid-2``.
            lateness: How long after its end a window is kept, to be corrected.
            tables: What names in the query stand for: streams; or tables, as DataFrames
                or functions from SparkSession to one, which are called in every epoch.
                A name that is not given is the uid of a source, else a table of Spark.

        Raises:
            InvalidFlowError: Spark cannot parse it, or a stream cannot answer it.
        """
        uids, keyed = dict(self._uids), list(self.keyed)
        generated = dict(self.generated)
        try:
            translated: Stream = import_module("riverlock.engines.jobs.sql").translate(
                self, query, tables, uid=uid, lateness=lateness
            )
        except BaseException:
            # A query that was refused leaves nothing: the next may have its uid.
            self._uids, self.keyed = uids, keyed
            self.generated = generated
            raise
        return translated

    def add(self, node: Keyed) -> Output:
        """Take keyed work, and the sink of what its user code fails at.

        Returns its main output.
        """
        self.keyed.append(node)
        self.settings[node.uid] = settings_of(node.process)
        if node.on_error is not None:
            dead = Output(input=node, name="dead")
            uid = self.take_uid(f"{node.uid}-dead", "dead", of=node.uid)
            self.writes.append(Write(uid=uid, input=dead, sink=node.on_error))
        return Output(input=node, name="main")

    def take_uid(self, uid: str | None, kind: str, *, of: str | None = None) -> str:
        """Return a uid for a node, made from its kind and order unless given.

        Args:
            uid: What was given.
            kind: What the node is.
            of: The uid of another node, if this one was made from it.

        Raises:
            InvalidFlowError: It is taken, or no name.
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
                f"uid {uid!r}",
                expected="a uid that no other node has",
                found=f"the uid of a {self._uids[uid]}",
                hint="give one of them another uid=",
            )
        self._uids[uid] = kind
        if is_made:
            self.generated[uid] = uid
        elif of in self.generated:
            self.generated[uid] = self.generated[of]
        return uid

    @property
    def nodes(self) -> list[Node | Write]:
        """All nodes that lead to state or to a sink, inputs first."""
        from riverlock.program.graph import inputs_of

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
        from riverlock.program.graph import inputs_of

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

    def run(self, store: str, **options: Unpack[RunKeywords]) -> Status:
        """Run in this thread until the input ends, a stop signal, or an error.

        The options, each by its name:

        - ``spark``: A session to run on; default: the active one, or a new local one.
        - ``available_now``: Take what is there at the start, then stop.
        - ``parallelism``: Tasks per keyed stage; default: the cores Spark has. May
          differ from run to run: state follows. ``"auto"``: at most that many, as
          backlog and duration of epochs ask for.
        - ``epoch_target``: How long an epoch should take, by default ``"1 second"``;
          rows per epoch adapt to it. None: all take ``max_rows_per_epoch``.
        - ``max_rows_per_epoch``: Rows an epoch takes at most, shared by its sources.
          Files are taken whole, at least one.
        - ``max_epochs``: Stop after so many epochs.
        - ``restart``: What to do when an epoch fails for a reason that may pass.
        - ``retain_epochs``: How many epochs can be gone back to; default: 20.
        - ``grace``: How long files that nothing refers to are kept, by default
          ``"10 minutes"``.
        - ``executor_timeout``: For how long Spark may have no executor while tasks
          wait, by default ``"5 minutes"``; then the run ends. None: for ever.
        - ``working_dir``: Local disk for working copies of state; disposable.
        - ``on_status``: Called after each epoch, with its ``Status``.
        - ``clock``: The time; for tests.

        Args:
            store: Directory or object-store URI that holds the flow's state.
            options: As above.

        Returns:
            How the run ended.

        Raises:
            InvalidConfigError: There is no such option, or its value makes no sense.
            RiverlockError: What ended the run.
        """
        ended: Status = self._runner().run(self, store, **options)
        return ended

    def start(self, store: str, **options: Unpack[RunKeywords]) -> Handle:
        """Run in a thread of its own; returns once the flow owns its store.

        Args:
            store: Directory or object-store URI that holds the flow's state.
            options: As of ``run``.

        Returns:
            A handle to watch, change and stop it.

        Raises:
            InvalidConfigError: There is no such option, or its value makes no sense.
            RiverlockError: The flow cannot run here.
        """
        started: Handle = self._runner().start(self, store, **options)
        return started

    def check(
        self, *, store: str | None = None, **options: Unpack[RunKeywords]
    ) -> None:
        """Check everything that can be checked without reading any input.

        Args:
            store: A store to go on from, which is not touched: what a source has lost
                since its newest epoch is told if it is missed.
            options: As of ``run``.

        Raises:
            InvalidConfigError: There is no such option, or its value makes no sense.
            InvalidFlowError: Something in the flow is impossible.
        """
        self._runner().check(self, store=store, **options)

    def replay(  # noqa: PLR0913 - keywords, each with a default
        self,
        store: str,
        first: int,
        last: int | None = None,
        *,
        operator: str | None = None,
        key: object = None,
        stepper: Stepper | None = None,
        spark: SparkSession | None = None,
        on_epoch: Callable[[EpochReplay], object] | None = None,
    ) -> Replay:
        """Run epochs of a store again, here and without any effect, and compare.

        The store is only read, and may belong to a running flow; sinks are told
        nothing. The epochs see the time, randomness, watermarks and input that they
        saw. If the code is another one by now, this is a shadow run.

        Args:
            store: Directory or object-store URI that holds the flow's state.
            first: The first epoch; the snapshot before it must be kept.
            last: The last epoch; default: only the first.
            operator: Which operator ``key`` and ``stepper`` mean; may be left out if
                there is only one.
            key: Handle only this key: a value, or a list for several key columns.
            stepper: A debugger to stop in the code of the operator.
            spark: A session to run on; default: the active one, or a new local one.
            on_epoch: Called after each epoch.

        Returns:
            What differs: ``matches``, ``epochs``, ``changes``.

        Raises:
            InvalidConfigError: The store is that of another flow, or the epochs or the
                operator are none of it.
            SnapshotNotFoundError: An epoch, or the one before, is not kept.
            SourceError: The input of an epoch is gone.
        """
        found: Replay = import_module("riverlock.replay.rerun").replay(
            self,
            store,
            first,
            last,
            operator=operator,
            key=key,
            stepper=stepper,
            spark=spark,
            on_epoch=on_epoch,
        )
        return found

    @staticmethod
    def _runner() -> Any:
        # Found by name: the description must not depend on what runs it.
        return import_module("riverlock.engines.jobs.runner")


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
