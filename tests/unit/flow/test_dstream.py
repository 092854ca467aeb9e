"""Window operations under the names that users of DStreams know."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import riverlock as rl
from riverlock.core.errors import InvalidFlowError
from riverlock.flow.inside import node_of
from riverlock.testing import run_local

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = "word string, n long, at timestamp"
# One record every ten seconds.
SENT = [(w, n, NOON + timedelta(seconds=10 * n)) for n, w in enumerate("abaab")]


def words(flow: rl.Flow) -> rl.Stream:
    source = rl.sources.files("in", format="json", schema=COLUMNS)
    return flow.read(source, uid="in").event_time("at", delay="0 seconds")


def both(old: Any, new: Any) -> Any:
    return old.word, old.n + new.n, max(old.at, new.at)


def without(whole: Any, part: Any) -> Any:
    return whole.word, whole.n - part.n, whole.at


def description(stream: rl.Stream) -> dict[str, Any]:
    node: Any = node_of(stream)
    keyed = node.input
    names = {f.name for f in fields(keyed)} - {"uid", "line"}
    return {name: getattr(keyed, name) for name in names}


def test_counts_are_those_of_sliding_windows() -> None:
    stream = words(rl.Flow("f"))
    window = rl.sliding("30 seconds", "10 seconds")

    counted = stream.count_by_window("30 seconds", "10 seconds", lateness="1 minute")
    by_value = stream.count_by_value_and_window("word", "30 seconds")

    late = stream.window(window, lateness="1 minute").count()
    assert description(counted) == description(late)
    tumbling = stream.key_by("word").window(rl.tumbling("30 seconds")).count()
    assert description(by_value) == description(tumbling)


def test_reduce_by_window_folds_all_records() -> None:
    flow = rl.Flow("f")
    words(flow).reduce_by_window(both, "20 seconds", "10 seconds", uid="r").write(
        rl.sinks.memory()
    )

    found = run_local(flow, SENT, epoch_rows=2).rows()

    # The watermark ends with the last record, at 12:00:40.
    ends = [(end - NOON).seconds for *_, end in found]
    assert ends == [10, 20, 30, 40]
    assert [n for _, n, *_ in found] == [0, 1, 3, 5]


@pytest.mark.parametrize("inverse", [None, without])
def test_reduce_by_key_and_window_folds_each_key(inverse: Any) -> None:
    flow = rl.Flow("f")
    keyed = words(flow).key_by("word")
    keyed.reduce_by_key_and_window(
        both, "40 seconds", "10 seconds", inverse=inverse, uid="r"
    ).write(rl.sinks.memory())

    found = run_local(flow, SENT, epoch_rows=1).rows()

    sums = {(word, (end - NOON).seconds): n for word, n, *_, end in found}
    assert sums == {
        ("a", 10): 0,
        ("a", 20): 0,
        ("a", 30): 2,
        ("a", 40): 5,
        ("b", 20): 1,
        ("b", 30): 1,
        ("b", 40): 1,
    }


def test_an_inverse_needs_windows_that_slide() -> None:
    keyed = words(rl.Flow("f")).key_by("word")

    with pytest.raises(InvalidFlowError, match="inverse of reduce"):
        keyed.window(rl.sessions("1 minute")).reduce(both, inverse=without)
    with pytest.raises(InvalidFlowError, match="a function"):
        keyed.reduce_by_key_and_window(both, "1 minute", inverse="no")  # type: ignore[arg-type]
