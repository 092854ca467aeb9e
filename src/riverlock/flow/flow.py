"""``Flow``: where a program begins and is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from riverlock.connectors.base.sink import check_dead_letter_sink
from riverlock.connectors.base.source import Source
from riverlock.connectors.channel.ends import JoinedChannel, LoopSource
from riverlock.core.errors import InvalidFlowError
from riverlock.core.guarantees import EXACTLY_ONCE
from riverlock.core.ids import MAIN_REGION, check_name
from riverlock.core.keywords import told_methods
from riverlock.core.types import schema_of
from riverlock.flow.engine_door import engines
from riverlock.flow.other_streams import Helpful
from riverlock.flow.stream import Stream
from riverlock.program.drawing.drawn import drawn
from riverlock.program.graph import Read, told_time
from riverlock.program.guarantees import check_guarantee
from riverlock.program.loops import Loop
from riverlock.program.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta
    from typing import Unpack

    from pyspark.sql import SparkSession

    from riverlock.connectors.base.sink import Sink
    from riverlock.core.guarantees import Guarantee
    from riverlock.core.types import SchemaLike
    from riverlock.driver.handle import Handle
    from riverlock.driver.run_options import RunKeywords
    from riverlock.program.drawing.graph_model import Graph
    from riverlock.program.graph import Node
    from riverlock.replay.report import EpochReplay, Replay
    from riverlock.replay.stepping import Stepper
    from riverlock.snapshot.format.run_status import Status

__all__ = ["Flow"]


@told_methods
class Flow(Helpful):
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
        self,
        name: str,
        *,
        key_groups: int = 128,
        on_error: Sink | None = None,
        guarantee: Guarantee = EXACTLY_ONCE,
    ) -> None:
        """Name the flow.

        Args:
            name: Part of every status and manifest; one store holds one flow.
            key_groups: Upper bound of the parallelism for ever; fixed by the store.
            on_error: A sink for records that make user code raise. By default there is
                none: the epoch fails and the error names the record.
            guarantee: What sinks are promised that are in no other region; see
                ``Stream.region``.

        Raises:
            InvalidFlowError: Name or number are out of bounds, or there is no such
                guarantee.
        """
        check_dead_letter_sink("Flow(on_error=)", on_error)
        check_guarantee("Flow(guarantee=)", guarantee)
        self._program = Program(name, key_groups=key_groups, on_error=on_error)
        self._program.guarantees[MAIN_REGION] = guarantee

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self._program.name

    @property
    def graph(self) -> Graph:
        """The flow as boxes and arrows: sources, steps, operators with state, sinks.

        ``print(flow.graph)`` shows it as text, a notebook as a picture;
        ``flow.graph.svg()`` and ``flow.graph.mermaid()`` return it for other places.
        """
        return drawn(self._program)

    def read(self, source: Source, *, uid: str | None = None) -> Stream:
        """Begin a stream at a source.

        Raises:
            InvalidFlowError: It is not a source, or the uid is taken.
        """
        if not isinstance(source, Source):
            raise InvalidFlowError(
                "flow.read()",
                expected="a source from rl.sources",
                found=repr(source),
                hint=_how_to_read(source),
            )
        program = self._program
        node = Read(uid=program.take_uid(uid, source.kind), source=source)
        columns = None if source.schema is None else schema_of(source.schema)
        entered: Node = node
        if isinstance(source, JoinedChannel) and source.timed:
            time = program.take_uid(f"{node.uid}-time", "event_time", of=node.uid)
            entered = told_time(node, time)
        program.streams[node.uid] = Stream(program, entered, columns)
        return program.streams[node.uid]

    def loop(
        self,
        schema: SchemaLike,
        *,
        uid: str | None = None,
        region: str = MAIN_REGION,
        max_rounds: int | None = None,
    ) -> Stream:
        """Begin a stream of rows that come round: ``stream.feed(loop)`` closes it.

        What an epoch feeds is input of a later one, once and in order. A bounded input
        has ended when the sources have and the loop is empty.

        Its rows have event times if ``event_time`` is called on it. They do not hold
        the watermark back: what comes round late goes to ``.late``.

        Args:
            schema: The columns of its rows (DDL, StructType or dataclass).
            uid: Stable name; keep it when the code changes.
            region: The region that its rows enter.
            max_rounds: How often rows may come round while nothing else comes in; then
                the region ends with an ``EndlessLoopError``. By default, for ever.

        Raises:
            InvalidFlowError: The uid is taken, or the number is not positive.
        """
        check_name("region", region)
        if max_rounds is not None and max_rounds < 1:
            raise InvalidFlowError(
                "max_rounds of flow.loop()",
                expected="at least 1",
                found=str(max_rounds),
            )
        program, columns = self._program, schema_of(schema)
        taken = program.take_uid(uid, "loop")
        read = program.take_uid(f"{taken}-read", "loop", of=taken)
        source = LoopSource(name=taken, schema=columns)
        node = Read(uid=read, source=source, region=region, is_loop=True)
        program.loops[taken] = Loop(
            uid=taken, node=node, source=source, max_rounds=max_rounds
        )
        program.streams[taken] = Stream(program, node, columns)
        return program.streams[taken]

    def renamed(self, uids: Mapping[str, str]) -> Flow:
        """Declare which operators had another uid: ``{"old": "new"}``; state follows.

        You may delete the line once an epoch of the new code is decided.

        Raises:
            InvalidFlowError: A uid is named twice.
        """
        both = {**self._program.renames, **uids}
        if len(set(both.values())) != len(both):
            raise InvalidFlowError(
                "flow.renamed()",
                expected="each new uid once",
                found=", ".join(f"{o} -> {n}" for o, n in both.items()),
            )
        self._program.renames = both
        return self

    def retired(self, *uids: str) -> Flow:
        """Declare which operators are gone for good: new epochs leave their state out.

        Without it a start refuses to orphan state. Earlier epochs keep it. You may
        delete the line once an epoch of the new code is decided.
        """
        self._program.retired |= set(uids)
        return self

    def retired_columns(self, source: str, *columns: str) -> Flow:
        """Declare which columns of a source are no longer needed.

        Without it a start refuses to continue without a column that user code received.
        You may delete the line once an epoch of the new code is decided.

        Args:
            source: The uid of the source.
            columns: Their names.
        """
        self._program.retired_columns |= {(source, column) for column in columns}
        return self

    def abandoned(self, *sinks: str, epoch: int) -> Flow:
        """Give up the rows of an epoch that wait for sinks.

        A start that is refused because of such rows names sink and epoch. The rows of
        other epochs are kept.

        Args:
            sinks: Uids of sinks.
            epoch: The epoch.
        """
        self._program.abandoned |= {(uid, epoch) for uid in sinks}
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

        Spark runs what it can compute row by row; ``GROUP BY`` with keys,
        ``window(...)`` or ``session_window(...)`` becomes ``key_by``, ``window`` and
        ``agg``. Spark is started, as for a run, to parse the query.

        Args:
            query: One SELECT in Spark's SQL.
            uid: Stable name of its state; keep it when the query changes. Of several
                aggregates the outer one has it, others are numbered: ``uid-2``.
            lateness: How long after its end a window is kept, to be corrected.
            tables: What names in the query stand for: streams; or tables, as DataFrames
                or functions from SparkSession to one, which are called in every epoch.
                A name that is not here is the uid of a source, else a table of Spark.

        Raises:
            InvalidFlowError: Spark cannot parse it, or a stream cannot answer it.
        """
        program = self._program
        mark = program.mark()
        try:
            return engines().translate(
                program, query, tables, uid=uid, lateness=lateness
            )
        except BaseException:
            # A query that was refused leaves nothing: the next may have its uid.
            program.go_back(mark)
            raise

    def run(self, store: str, **options: Unpack[RunKeywords]) -> Status:
        """Run in this thread until the input ends, a stop signal, or an error.

        The options, each by its name:

        - ``execution``: ``"jobs"``: each stage of an epoch is a Spark job.
          ``"continuous"``: all run in Spark tasks that stay from epoch to epoch.
          ``"local"``: all run in one thread without Spark, if all steps are Python.
        - ``spark``: A session to run on; default: the active one, or a new local one.
        - ``region``: Run this region alone; others may run in other processes.
        - ``available_now``: Take what is there at the start, then stop. A region that
          others write to ends when they have, wherever they run.
        - ``parallelism``: Tasks per keyed stage; default: the cores Spark has. May
          differ from run to run: state follows. ``"auto"``: at most that many, as
          backlog and duration of epochs ask for.
        - ``epoch_target``: How long an epoch should take, by default ``"1 second"``;
          rows per epoch adapt to it. None: all take ``max_rows_per_epoch``.
        - ``max_rows_per_epoch``: Rows an epoch takes at most, shared by its sources.
          Files are taken whole, at least one.
        - ``max_epochs``: Stop after this many epochs.
        - ``restart``: What to do when an epoch fails for a reason that may pass.
        - ``retain_epochs``: How many epochs are kept to go back to; default: 20.
        - ``grace``: How long files that nothing refers to are kept, by default
          ``"10 minutes"``.
        - ``snapshots_every``: Take a snapshot of all regions this often, named
          ``auto-000001`` and so on. None, the default: only when somebody asks.
        - ``snapshots_keep``: How many of these are kept; default: 10.
        - ``protocol``: How several regions agree on a snapshot, unless whoever asks
          says otherwise: see ``Handle.savepoint``; default: ``"aligned"``.
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
        return engines().run(self._program, store, **options)

    def start(self, store: str, **options: Unpack[RunKeywords]) -> Handle:
        """Run in a thread of its own; return once the flow owns its store.

        If a source does not answer, it returns while the run waits for it: its handle
        says so, and can stop it.

        Args:
            store: Directory or object-store URI that holds the flow's state.
            options: As for ``run``.

        Returns:
            A handle to watch, change and stop it.

        Raises:
            InvalidConfigError: There is no such option, or its value makes no sense.
            RiverlockError: The flow cannot run here.
        """
        return engines().start(self._program, store, **options)

    def check(
        self, *, store: str | None = None, **options: Unpack[RunKeywords]
    ) -> None:
        """Check everything that can be checked without reading any input.

        Args:
            store: A store to continue from, which is not touched: a column that a
                source has lost since its newest epoch is reported if it is needed.
            options: As for ``run``.

        Raises:
            InvalidConfigError: There is no such option, or its value makes no sense.
            InvalidFlowError: Something in the flow is impossible.
        """
        engines().check_start(self._program, store=store, **options)

    def replay(  # noqa: PLR0913 - keywords, each with a default
        self,
        store: str,
        first: int,
        last: int | None = None,
        *,
        region: str | None = None,
        operator: str | None = None,
        key: object = None,
        stepper: Stepper | None = None,
        execution: Literal["jobs", "local"] = "jobs",
        spark: SparkSession | None = None,
        on_epoch: Callable[[EpochReplay], object] | None = None,
    ) -> Replay:
        """Run epochs of a store again, here and without any effect, and compare.

        The store is only read, and may belong to a running flow; sinks are not
        involved. The epochs see the time, randomness, watermarks and input that they
        saw. If the code has changed since, this is a shadow run.

        Args:
            store: Directory or object-store URI that holds the flow's state.
            first: The first epoch; the snapshot before it must be kept.
            last: The last epoch; by default only the first.
            region: Of a flow with several regions, the one whose epochs these are.
            operator: Which operator ``key`` and ``stepper`` refer to; may be left out
                if there is only one.
            key: Process only this key: a value, or a list for several key columns.
            stepper: A debugger to stop in the code of the operator.
            execution: The engine that reads the input, as of ``run``; it need not be
                the one that ran the epochs.
            spark: A session to run on; by default the active one, or a new local one.
            on_epoch: Called after each epoch.

        Returns:
            What differs: ``matches``, ``epochs``, ``changes``.

        Raises:
            InvalidConfigError: The store belongs to another flow, or it does not have
                the epochs or the operator.
            SnapshotNotFoundError: An epoch, or the one before, is not kept.
            SourceError: The input of an epoch is gone.
        """
        return engines().replay(
            self._program,
            store,
            first,
            last,
            region=region,
            operator=operator,
            key=key,
            stepper=stepper,
            execution=execution,
            spark=spark,
            on_epoch=on_epoch,
        )


def _how_to_read(given: object) -> str:
    if isinstance(given, str):
        return f'write rl.sources.files({given!r}, format="json", schema="...")'
    # Functions of rl.sources stand beside what they make.
    name = getattr(given, "__name__", None)
    if name and getattr(given, "__module__", "").startswith("riverlock."):
        return f"call it: rl.sources.{name}(...)"
    return ""
