"""Values as text: the same in every process, whatever they hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from typing import Any

import pytest

from riverlock.program.value_text import text_of

MADE = """
import re
from collections import deque
from pathlib import Path
from riverlock.program.value_text import text_of

class Rule:
    def __init__(self, names):
        self.names, self.me, self.seen = names, self, object()

def above(n):
    def test(row):
        return row.n > n or test(row)
    return test

print(text_of([
    Rule({"a", "b", "c"}), Path("a"), re.compile("x"), deque([1, 2]), above(3), b"x",
    frozenset({"k", "l", "m"}), print, re,
]))
"""


class Node:
    def __init__(self) -> None:
        self.others: list[Node] = []


class Odd:
    def __reduce_ex__(self, version: Any) -> Any:
        message = "not of this kind"
        raise RuntimeError(message)


def test_the_text_is_the_same_in_every_process() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", MADE],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(found) == 1
    assert "0x" not in found.pop()


def test_values_that_all_hold_each_other_are_written_once() -> None:
    nodes = [Node() for _ in range(40)]
    for node in nodes:
        node.others = nodes

    assert len(text_of(nodes[0])) < 20_000


def test_a_long_chain_ends() -> None:
    first = last = Node()
    for _ in range(5_000):
        last.others = [Node()]
        last = last.others[0]

    assert text_of(first)


def test_what_cannot_be_sent_is_known_by_its_class() -> None:
    assert text_of(Odd()) == "'Odd'"
    assert text_of(iter([])) == text_of(iter([]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (deque([1]), deque([2])),
        ({1: 2}, {1: 3}),
        (b"a", b"b"),
        (lambda row: row.a is None, lambda row: row.a is not None),
        (lambda row: "x" in row.a, lambda row: "x" not in row.a),
        (lambda row: -row.a, lambda row: ~row.a),
        (lambda row: row.a == 1, lambda row: row.a != 1),
        (lambda row: row.a * 2, lambda row: row.a / 2),
    ],
)
def test_values_that_differ_have_other_texts(one: Any, other: Any) -> None:
    assert text_of(one) != text_of(other)
