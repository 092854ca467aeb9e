"""Runs an operator's tasks epoch by epoch over a store, without Spark or a driver."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from riverlock.connectors.base.stager import StagePoint
from riverlock.coordinator.votes import Vote
from riverlock.core.hidden_columns import GROUP, SEQ
from riverlock.core.types import schema_of
from riverlock.operators.shipped import MAIN, EpochInfo, OperatorProgram
from riverlock.program.process import KeyedLogic
from riverlock.snapshot.format.records import StateFile
from riverlock.snapshot.format.state_files import live, merge_tables, read_table
from riverlock.state.copy.baseline import Baseline
from riverlock.state.keys import key_group
from riverlock.storage import LocalStorage
from riverlock.worker.task import (
    KeyedEpoch,
    KeyedTask,
    Place,
    Targets,
    decode_outcome,
)

INPUT = schema_of("k string, v long")
KEYS = schema_of("k string")
GROUPS = 16


@dataclass(frozen=True)
class RowStager:
    """Stages rows as the token itself."""

    def stage(self, table: pa.Table, at: StagePoint) -> list[Any]:
        return [tuple(r.values()) for r in table.to_pylist()]


@dataclass
class Tasks:
    """What a driver knows between epochs."""

    storage: LocalStorage
    working_dir: Path
    process: KeyedLogic[Any]
    output: str
    parallelism: int = 2
    token: str = "run-1"
    epoch: int = 0
    files: tuple[StateFile, ...] = ()
    history: tuple[tuple[int, str], ...] = ((1, "run-1"),)
    votes: list[Vote] = field(default_factory=list)
    # Tasks that run on other machines than the first.
    elsewhere: dict[int, Path] = field(default_factory=dict)

    def program(self) -> bytes:
        program = OperatorProgram(
            uid="op",
            process=self.process,
            keys=KEYS,
            input=INPUT,
            outputs={MAIN: schema_of(self.output)},
        )
        dumps: Any = cloudpickle.dumps
        blob: bytes = dumps(program)
        return blob

    def task(self) -> KeyedTask:
        return KeyedTask(
            place=Place(
                storage=self.storage,
                region="main",
                stage="s",
                run=1,
                token=self.token,
            ),
            program=self.program(),
            parallelism=self.parallelism,
            key_groups=GROUPS,
            working_dir=str(self.working_dir),
            targets={MAIN: Targets(sinks={"out": RowStager()})},
        )

    def begun(self) -> KeyedEpoch:
        return KeyedEpoch(
            info=EpochInfo(epoch=self.epoch + 1, now_us=self.epoch, seed=0),
            base=Baseline(
                epoch=self.epoch or None, files=self.files, history=self.history
            ),
        )

    def batches(self, rows: list[tuple[str, int]], partition: int) -> list[Any]:
        from riverlock.state.keys import owner_of

        groups = [key_group(r[:1], KEYS, GROUPS) for r in rows]
        mine = [
            (n, r, g)
            for n, (r, g) in enumerate(zip(rows, groups, strict=True))
            if owner_of(g, self.parallelism, GROUPS) == partition
        ]
        if not mine:
            return []
        table = pa.table(
            {
                "k": pa.array([r[0] for _, r, _ in mine], pa.string()),
                "v": pa.array([r[1] for _, r, _ in mine], pa.int64()),
                SEQ: pa.array([n for n, _, _ in mine], pa.int64()),
                GROUP: pa.array([g for _, _, g in mine], pa.int32()),
            }
        )
        found: list[Any] = table.to_batches()
        return found

    def attempt(self, rows: list[tuple[str, int]]) -> list[Vote]:
        """Run all tasks of the next epoch without deciding it."""
        everywhere, begun = pickle.loads(pickle.dumps((self.task(), self.begun())))
        votes = []
        for partition in range(self.parallelism):
            home = self.elsewhere.get(partition, self.working_dir)
            task = replace(everywhere, working_dir=str(home))
            batches = self.batches(rows, partition)
            outcome = decode_outcome(task(batches, partition, begun))
            if outcome.error is not None:
                raise pickle.loads(outcome.error)
            assert outcome.vote is not None
            votes.append(outcome.vote)
        return votes

    def run(self, *rows: tuple[str, int]) -> list[Any]:
        """Run and decide an epoch; returns the staged rows."""
        votes = self.attempt(list(rows))
        self.votes = votes
        self.epoch += 1
        made = tuple(f for v in votes for f in v.operators["op"].files)
        self.files = (*self.files, *made)
        return [tuple(row) for v in votes for row in v.outputs.get("out", ())]

    def restarted(self, **changes: Any) -> Tasks:
        """Return what another run on the same store and machine knows."""
        token = f"{self.token}+"
        history = (*self.history, (self.epoch + 1, token))
        return replace(self, token=token, history=history, **changes)

    def truth(self) -> dict[Any, Any]:
        """Return the values of all keys, read from the files alone."""
        if not self.files:
            return {}
        merged = live(
            merge_tables([read_table(self.storage, f) for f in self.files]), 0
        )
        rows = [r for r in merged.to_pylist() if r["entry"] == "values"]
        return {r["key"]["k"]: r["data"] for r in rows if r["key"]}

    def copies(self) -> list[Path]:
        root = self.working_dir / "main" / "op"
        return sorted(p for p in root.iterdir() if (p / "data.mdb").exists())
