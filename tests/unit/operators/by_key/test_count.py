from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.flow.inside import program_of
from riverlock.testing import run_local

WORDS = "word string, line int"


def keyed(flow: rl.Flow, *keys: str) -> rl.KeyedStream:
    source = rl.sources.files("in", format="json", schema=WORDS)
    return flow.read(source, uid="words").key_by(*keys)


def test_count_emits_a_row_per_changed_key_and_epoch() -> None:
    flow = rl.Flow("words")
    keyed(flow, "word").count(uid="n").write(rl.sinks.memory(), uid="out")
    words = [("a", 1), ("b", 1), ("a", 1), ("b", 2), ("c", 2), ("b", 2)]

    run = run_local(flow, words, epoch_rows=3)

    assert run.rows() == [("a", 2), ("b", 1), ("b", 3), ("c", 1)]


def test_running_count_emits_a_row_per_record() -> None:
    flow = rl.Flow("words")
    keyed(flow, "word").running_count(uid="n").write(rl.sinks.memory(), uid="out")

    run = run_local(flow, [("a", 1), ("b", 1), ("a", 1), ("b", 2)], epoch_rows=3)

    assert run.rows() == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2))),
    st.integers(1, 5),
)
def test_counts_are_those_of_plain_python(
    words: list[tuple[str, int]], epoch_rows: int
) -> None:
    flow = rl.Flow("words")
    pairs = keyed(flow, "word", "line")
    pairs.count(uid="n").write(rl.sinks.memory(), uid="counts")
    pairs.running_count(uid="r").write(rl.sinks.memory(), uid="running")

    run = run_local(flow, words, epoch_rows=epoch_rows)

    expected: Counter[tuple[str, int]] = Counter()
    emitted: list[tuple[Any, ...]] = []
    running: list[tuple[Any, ...]] = []
    for begin in range(0, len(words), epoch_rows):
        epoch = words[begin : begin + epoch_rows]
        for word in epoch:
            expected[word] += 1
            running.append((*word, expected[word]))
        emitted += [(*word, expected[word]) for word in set(epoch)]
    assert Counter(run.rows("counts")) == Counter(emitted)
    assert Counter(run.rows("running")) == Counter(running)


def test_counts_can_be_written_as_a_whole_table() -> None:
    flow = rl.Flow("words")
    counts = keyed(flow, "word").count(uid="n")
    counts.write(rl.sinks.memory(), mode="complete", uid="table")
    counts.write(rl.sinks.memory(), mode="update", uid="changes")

    run = run_local(flow, [("a", 1), ("b", 1), ("a", 1), ("b", 2)], epoch_rows=2)

    assert run.rows("table") == [("a", 2), ("b", 2)]
    assert run.rows("changes") == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_running_counts_have_one_mode() -> None:
    running = keyed(rl.Flow("words"), "word").running_count()

    with pytest.raises(InvalidFlowError, match="one mode only"):
        running.write(rl.sinks.memory(), mode="update")


def test_uids_say_which_is_which() -> None:
    flow = rl.Flow("words")
    words = keyed(flow, "word")
    words.count()
    words.running_count()

    uids = [node.uid for node in program_of(flow).keyed]

    assert uids == ["count-1", "running_count-1"]
