"""``spark.read.format("riverlock")``: state of a snapshot as a DataFrame.

PySpark finds it by the module ``pyspark_riverlock``; nothing has to be registered.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from riverlock.core.errors import InvalidConfigError, RiverlockError
from riverlock.query.opened_store import open_store
from riverlock.state.keys import group_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from riverlock.query.relation import Relation

__all__ = ["DefaultSource"]

_OPTIONS = ("path", "operator", "state", "at", "partitions")


class DefaultSource(DataSource):
    """Reads a relation of a store.

    Options: ``operator``; ``state``, a variable or ``timers``, without which there is
    a row per key; ``at``, an epoch or a name, by default the newest epoch when the
    DataFrame is made; ``partitions``, by default as many as the flow had tasks.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to ``format``."""
        return "riverlock"

    def __init__(self, options: dict[str, str]) -> None:
        """Take the options, and fix the epoch: all tasks read the same."""
        super().__init__(options)
        with _told_in_a_line():
            _check(options)
            self._store, self._operator = options["path"], options["operator"]
            self._state = options.get("state")
            self._partitions = options.get("partitions")
            self._epoch = open_store(self._store).at(options.get("at")).epoch
            self._relation()

    def _relation(self) -> Relation:
        store = open_store(self._store)
        return store.state(self._operator, self._state, at=self._epoch)

    def schema(self) -> str:
        """Return the columns of the relation."""
        return self._relation().view.columns.ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the relation, by key groups."""
        relation = self._relation()
        tasks = relation.manifest.parallelism
        if self._partitions is not None:
            tasks = int(self._partitions)
        return _Reader(relation, tasks)


@contextmanager
def _told_in_a_line() -> Iterator[None]:
    """Keep our frames out of what Spark reports about an error in the user's options.

    Spark makes the source in a worker of its own, which ends after an error: there, and
    only there, the setting concerns nobody else.
    """
    try:
        yield
    except RiverlockError:
        if any(name.startswith("pyspark.sql.worker.") for name in sys.modules):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _check(options: dict[str, str]) -> None:
    missing = {"path", "operator"} - options.keys()
    unknown = options.keys() - set(_OPTIONS)
    count = options.get("partitions", "1")
    # Names only in what is said: values may be secrets of other sources.
    if not missing and not unknown and count.isdecimal() and int(count) > 0:
        return
    raise InvalidConfigError(
        'spark.read.format("riverlock")',
        expected=f"a path, an operator, and only the options {', '.join(_OPTIONS)}",
        found=", ".join(sorted(options)) or "none",
        hint='.option("operator", "velocity").load(store)',
    )


class _Groups(InputPartition):
    """The key groups of a task."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(None)
        self.first, self.end = first, end


class _Reader(DataSourceReader):
    """Reads a relation, each task some key groups."""

    def __init__(self, relation: Relation, tasks: int) -> None:
        self._relation, self._tasks = relation, tasks

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the key groups; what all share goes to one task."""
        groups = self._relation.manifest.key_groups
        tasks = min(self._tasks, groups)
        if self._relation.view.scope == "broadcast":
            return [_Groups(0, groups)]
        return [_Groups(*group_range(n, tasks, groups)) for n in range(tasks)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Read the rows of some key groups."""
        return self._relation.within(partition.first, partition.end).batches()
