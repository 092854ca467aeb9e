"""Arrow now and then aborts a process that ends soon after it has started a thread."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import os
import pyarrow as pa
import pyarrow.parquet as pq
from riverlock.snapshot.format.state_files import encode_table, table_of

table = pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]})
data = encode_table(table)
before = len(os.listdir("/proc/self/task"))
assert table_of(data).equals(table)
ours = len(os.listdir("/proc/self/task"))
pq.read_table(pa.BufferReader(data), use_threads=False)
print(ours - before, len(os.listdir("/proc/self/task")) - ours, flush=True)
os._exit(0)  # A thread of Arrow's has been started now.
"""


def test_a_file_of_the_store_is_read_without_starting_a_thread() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    ours, plain = map(int, printed.stdout.split())
    assert ours == 0
    assert plain > 0, "Arrow's own function starts none: ours is not needed any more"
