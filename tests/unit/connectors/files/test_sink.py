"""Output directories: what a run does before its first epoch, and how rows look."""

from __future__ import annotations

import json
import math
from pathlib import Path

import riverlock as rl
from riverlock.connectors.base.committer import Owner
from riverlock.connectors.builtin_committers import FileCommitter
from riverlock.sinks import files
from riverlock.snapshot.past import Past
from riverlock.testing import rows


class Decided(Past):
    """The past of a store whose newest epoch is 8."""

    newest = 8


def test_what_tasks_staged_after_their_epoch_was_committed_goes(tmp_path: Path) -> None:
    sink = files(str(tmp_path), format="json")
    owner = Owner(flow="f", sink="out", run=1, past=Decided())
    FileCommitter(sink).open(owner)
    staged = tmp_path / "_riverlock/staged"
    for epoch in (7, 8, 9):
        (staged / f"{epoch:012d}/token").mkdir(parents=True)
        (staged / f"{epoch:012d}/token/late").write_text("{}\n")

    FileCommitter(sink).open(Owner(flow="f", sink="out", run=2, past=Decided()))

    # That of epoch 8 may not be committed yet; of 9 nothing is decided.
    assert sorted(p.name for p in staged.iterdir()) == ["000000000008", "000000000009"]


def test_numbers_that_json_has_no_word_for_are_text_as_spark_writes_them(
    tmp_path: Path,
) -> None:
    listed = rows(
        "n long, x double, some array<float>",
        [
            (1, 1.5, [math.nan]),
            (2, math.nan, []),
            (3, math.inf, None),
            (4, -math.inf, [-math.inf, 0.5]),
        ],
    )
    flow = rl.Flow("numbers")
    flow.read(listed, uid="in").map(
        lambda row: (row.n, row.x, row.some), output=listed.schema, uid="same"
    ).write(files(str(tmp_path / "out"), format="json"), uid="out")

    flow.run(str(tmp_path / "store"), execution="local", available_now=True)

    (file,) = (tmp_path / "out").glob("epoch=*/*")
    found = {r["n"]: r for r in map(json.loads, file.read_text().splitlines())}
    numbers = [found[n]["x"] for n in range(1, 5)]
    assert numbers == [1.5, "NaN", "Infinity", "-Infinity"]
    assert found[1]["some"] == ["NaN"]
    assert found[4]["some"] == ["-Infinity", 0.5]
