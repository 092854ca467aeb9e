"""A task that lives for many epochs: reads its share, exchanges rows, votes."""

from __future__ import annotations

import dataclasses
import gc
import logging
import pickle
from typing import TYPE_CHECKING

import pyarrow as pa

from riverlock.core.errors import EpochAbortedError, ExchangeError
from riverlock.core.garbage import without_gc
from riverlock.engines.continuous.orders import Kind, failed, read_order, voted
from riverlock.exchange.seam import Message
from riverlock.exchange.sockets.member import join

if TYPE_CHECKING:
    from riverlock.coordinator.votes import Vote
    from riverlock.engines.continuous.orders import Setup, Share, StageOrder
    from riverlock.engines.tables.nodes import Tables
    from riverlock.exchange.seam import Member

__all__ = ["run_task"]

log = logging.getLogger(__name__)


def run_task(invitation: bytes, task: int) -> None:
    """Be a task of a generation, until that ends."""
    try:
        member = join(invitation, task)
    except ExchangeError as error:
        # The driver sees who has not come.
        log.info("task %s does not begin: %s", task, error)
        return
    with member:
        _Task(member, task).run()


class _Task:
    """What a task has in memory; dropped with its generation."""

    def __init__(self, member: Member, task: int) -> None:
        self._member, self._task = member, task
        self._setup: Setup | None = None
        # The rows of the epoch in progress: each step is evaluated once.
        self._tables: Tables | None = None
        # Outputs for later stages, of the operator that has just run.
        self._kept: dict[str, pa.Table] = {}

    def run(self) -> None:
        while (message := self._received()) is not None:
            if message.kind == Kind.SETUP:
                self._begin(pickle.loads(message.payload))  # noqa: S301 - our driver's
            else:
                order, share = read_order(message.payload)
                outcome = Message(Kind.OUTCOME, self._outcome(order, share))
                try:
                    self._member.control.send(outcome)
                except ExchangeError:
                    return

    def _received(self) -> Message | None:
        try:
            return self._member.control.receive(None)
        except ExchangeError:
            return None

    def _begin(self, setup: Setup) -> None:
        keep = self._kept.__setitem__
        keyed = {
            stage: dataclasses.replace(task, later=keep)
            for stage, task in setup.keyed.items()
        }
        self._setup = dataclasses.replace(setup, keyed=keyed)
        # What is here by now stays: the collector need not look through it each time.
        gc.collect()
        gc.freeze()

    def _outcome(self, order: StageOrder, share: Share) -> bytes:
        try:
            with without_gc():
                return voted(order.seed, self._vote(order, share))
        except ExchangeError as error:
            aborted = EpochAbortedError(
                epoch=order.epoch, reason=error.reason, cause=error.what
            )
            return failed(order.seed, aborted)
        except Exception as error:  # noqa: BLE001 - the driver says what it means
            return failed(order.seed, error)

    def _vote(self, order: StageOrder, share: Share) -> Vote:
        setup = self._setup
        assert setup is not None, "the driver sends it first"
        tables = self._tables_of(setup, order, share)
        for stage, late in order.late.items():
            tables.take_late(stage, late)
        if order.stage in setup.edges:
            return self._keyed(setup, tables, order, share)
        writing = dataclasses.replace(
            setup.writes[order.stage], epoch=order.epoch, seed=order.seed
        )
        found, read = setup.inputs.outputs(order.stage, tables)
        return writing.staged(found, read, self._task)

    def _tables_of(self, setup: Setup, order: StageOrder, share: Share) -> Tables:
        if share.pieces is not None:
            self._tables = setup.inputs.tables(share.pieces, now_us=order.now_us)
        assert self._tables is not None, "the first stage tells what is read"
        return self._tables

    def _keyed(
        self, setup: Setup, tables: Tables, order: StageOrder, share: Share
    ) -> Vote:
        stage, edge = order.stage, setup.edges[order.stage]
        epoch = self._member.exchange.begin(order.epoch, order.turn)
        sent = setup.inputs.sent(stage, tables, setup.tasks, share.initial)
        for peer, table in sent.items():
            for batch in table.to_batches():
                epoch.send(edge, peer, batch)
        del sent
        epoch.finish(edge)
        rows = epoch.await_table(edge, None)
        assert rows is not None, "it waits for as long as it takes"
        assert order.begun is not None, "a keyed stage"
        vote = setup.keyed[stage].vote(_alike(rows), self._task, order.begun)
        epoch.release(edge)
        for name, table in self._kept.items():
            tables.take_output(stage, name, setup.inputs.made(stage, name, table))
        self._kept.clear()
        return vote


def _alike(batches: tuple[pa.RecordBatch, ...]) -> list[pa.RecordBatch]:
    """Return batches with the same columns: null where a sender had none."""
    if all(b.schema.equals(batches[0].schema) for b in batches):
        return list(batches)
    tables = [pa.Table.from_batches([b]) for b in batches]
    whole = pa.concat_tables(tables, promote_options="default")
    return list(whole.to_batches())
