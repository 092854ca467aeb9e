"""Types are made known to msgspec by one thread at a time."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import riverlock

SOURCE = Path(riverlock.__file__).parent
# Threads ask for classes that nobody has asked for, and are switched at any moment.
RACE = """
import sys, threading
import msgspec
from riverlock.core.values.known_types import known

sys.setswitchinterval(1e-6)
CLASSES = "class A(msgspec.Struct):\\n" + "".join(
    f"    f{n}: dict[str, tuple[int, ...]] | None = None\\n" for n in range(30)
) + "class B(A):\\n    a: tuple[A, ...] = ()\\n    b: dict[str, A] = {}\\n"

for _ in range(15):
    names = {"msgspec": msgspec, "__name__": __name__}
    exec(CLASSES, names)
    kind, begin, found = names["B"], threading.Barrier(4), []

    def decode():
        begin.wait()
        raw = b'{"f0":{"x":[1]},"a":[{"f29":{"y":[2]}}],"b":{"z":{"f1":{}}}}'
        found.append(msgspec.json.decode(raw, type=known(kind)))

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [f.a[0].f29 for f in found] == 4 * [{"y": (2,)}]
"""


def test_threads_that_decode_a_type_for_the_first_time_do_not_end_the_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", RACE], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stderr


def typed_calls(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what calls of msgspec take as the type that they decode."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if not called.startswith("msgspec."):
            continue
        if called.endswith(".Decoder"):
            yield from node.args[:1]
        if called == "msgspec.convert":
            yield node.args[1]
        yield from (k.value for k in node.keywords if k.arg == "type")


def test_whoever_decodes_makes_the_type_known_first() -> None:
    home = SOURCE / "core" / "values" / "known_types.py"
    found = [
        (path.relative_to(SOURCE), ast.unparse(kind))
        for path in SOURCE.rglob("*.py")
        if path != home
        for kind in typed_calls(ast.parse(path.read_text(encoding="utf-8")))
    ]

    assert len(found) > 15
    assert not [f for f in found if not f[1].startswith("known(")]
