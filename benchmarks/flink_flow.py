"""The same count and sum in PyFlink: a task per core, RocksDB, checkpoints each second.

PyFlink wants an Arrow older than ours, so that it has an environment of its own:

    python -m venv flink && flink/bin/pip install apache-flink
    FLINK_PYTHON=flink/bin/python python -m benchmarks.keyed_state --peers PyFlink

``measured`` starts this file with that Python; nothing else of Riverlock is imported
there. Each worker notes how far it has come twice a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.common import Epoch, Window

PYTHON = "FLINK_PYTHON"


def measured(keys: int, window: Window) -> list[Epoch]:
    """Run it on all cores; returns a second each as an epoch."""
    from benchmarks.notes import watched
    from benchmarks.processes import kill_with_descendants

    with tempfile.TemporaryDirectory() as place:
        notes = Path(place, "notes")
        notes.mkdir()
        command = [os.environ[PYTHON], __file__, str(keys), place]
        # Neither our packages nor our Python are for Flink's workers.
        settings = {n: v for n, v in os.environ.items() if n != "PYTHONPATH"}
        with subprocess.Popen(command, env=settings) as flink:
            try:
                return watched(notes, window, [flink])
            finally:
                kill_with_descendants(flink.pid)


def run(keys: int, place: Path) -> None:
    """Run the job until it is killed."""
    from pyflink.common import Configuration, Types
    from pyflink.common.watermark_strategy import WatermarkStrategy
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.datastream.connectors.number_seq import NumberSequenceSource
    from pyflink.datastream.functions import KeyedProcessFunction, RuntimeContext
    from pyflink.datastream.state import ValueStateDescriptor

    class Running(KeyedProcessFunction):
        def open(self, context: RuntimeContext) -> None:
            state = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
            self._state = context.get_state(ValueStateDescriptor("state", state))
            self._path = place / "notes" / str(context.get_index_of_this_subtask())
            self._seen, self._noted = 0, time.monotonic()

        def process_element(self, value: Any, ctx: Any) -> Any:
            n, total = self._state.value() or (0, 0.0)
            self._state.update((n + 1, total + value[1]))
            self._seen += 1
            if time.monotonic() - self._noted > 0.5:
                self._noted = time.monotonic()
                hidden = self._path.with_suffix(".tmp")
                hidden.write_text(str(self._seen))
                hidden.rename(self._path)
            return ()

    settings = Configuration()
    settings.set_string("state.backend.type", "rocksdb")
    settings.set_string("execution.checkpointing.interval", "1 s")
    settings.set_string("execution.checkpointing.dir", (place / "points").as_uri())
    settings.set_string("python.executable", sys.executable)
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(os.cpu_count() or 1)
    numbers = environment.from_source(
        NumberSequenceSource(0, 10**12), WatermarkStrategy.no_watermarks(), "numbers"
    )
    kind = Types.TUPLE([Types.LONG(), Types.DOUBLE()])
    # Spread like a hash, and cheap: Knuth's multiplier.
    records = numbers.map(
        lambda n: (n * 2654435761 % 4294967296 % keys, n % 10_000 / 100), kind
    )
    running = records.key_by(lambda r: r[0], Types.LONG()).process(Running(), kind)
    running.print()
    environment.execute("bench")


if __name__ == "__main__":
    run(int(sys.argv[1]), Path(sys.argv[2]))
