"""How many bytes an epoch writes for a key that it changed.

python -m benchmarks.change_files [--keys 100000] [--rows 400000]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile

from benchmarks import harness
from benchmarks.common import save
from benchmarks.keyed_state import running

SECONDS = 120.0


def bytes_per_key(keys: int, rows: int) -> float:
    """Return the size of the files of an epoch, per key."""
    from riverlock.snapshot.catalog import Catalog
    from riverlock.storage.open import open_storage

    with tempfile.TemporaryDirectory() as store:
        running(keys).run(
            store, epoch_target=None, max_rows_per_epoch=rows, max_epochs=3
        )
        newest = Catalog(open_storage(store)).newest()
        assert newest is not None
        files = [
            f
            for f in newest.operators["running"].files
            if f.first_epoch == f.last_epoch == newest.epoch
        ]
    return sum(f.bytes for f in files) / sum(f.rows for f in files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=400_000, help="records per epoch")
    parser.add_argument("--only", action="store_true", help=argparse.SUPPRESS)
    harness.add_options(parser)
    chosen = parser.parse_args()
    if chosen.only:
        print(json.dumps(bytes_per_key(chosen.keys, chosen.rows)))
        return
    name, arguments = "a changed key", [*sys.argv[1:], "--only"]
    contender = harness.Contender(name, arguments, SECONDS)
    found = harness.measure(
        "benchmarks.change_files", [contender], "{:.1f} bytes".format, chosen
    )
    save("change_files", {"bytes": found, **vars(chosen)})


if __name__ == "__main__":
    main()
