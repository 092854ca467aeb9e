"""What a run does with an output directory before its first epoch."""

from __future__ import annotations

from pathlib import Path

from riverlock.connectors.base.committer import Owner
from riverlock.connectors.builtin_committers import FileCommitter
from riverlock.sinks import files
from riverlock.snapshot.past import Past


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
