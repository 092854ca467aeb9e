from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from riverlock.cli import main

COMMANDS = main.list_commands(click.Context(main))
READ_ONLY = ("status", "state", "snapshots", "verify")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_two_examples_and_json(cli: Any, name: str) -> None:
    done = cli(name, "--help")

    assert done.code == 0
    examples = done.out.partition("Examples:")[2].partition("Options:")[0]
    assert len(re.findall(rf"riverlock {name}\s", examples)) == 2
    assert "--json" in done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_listed_with_the_line_that_it_has(cli: Any, name: str) -> None:
    assert f"  {name} " in cli("--help").out


@pytest.mark.parametrize("words", [[], ["--nonsense"], ["no-such"], ["state"]])
def test_wrong_usage_is_the_users_error(cli: Any, words: list[str]) -> None:
    done = cli(*words)

    # Without any word, click shows the help; all others are errors of the user.
    assert done.code == (0 if not words and not done.err else 1)


@pytest.mark.parametrize("name", READ_ONLY)
def test_missing_store_exits_3(cli: Any, name: str, tmp_path: Path) -> None:
    done = cli(name, tmp_path / "none")

    assert done.code == 3
    assert "could not find a store" in done.err
    assert "check the path" in done.err
    assert not (tmp_path / "none").exists()


def test_missing_store_as_json(cli: Any, tmp_path: Path) -> None:
    done = cli("status", tmp_path / "none", "--json")

    error = done.json["error"]
    assert (done.code, error["exit_code"], error["code"]) == (
        3,
        3,
        "SNAPSHOT_NOT_FOUND",
    )


def test_newer_format_exits_3(cli: Any, shop: Path) -> None:
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Flow
    from riverlock.snapshot.format.sealed import seal
    from riverlock.storage.local import LocalStorage

    flow = Catalog(LocalStorage(shop)).flow()
    newer = Flow(format=99, name=flow.name, id=flow.id, key_groups=128, created_us=1)
    (shop / "flow.json").write_bytes(seal(newer))

    done = cli("status", shop)

    assert done.code == 3
    assert "newer" in done.err


def test_unexpected_exception_exits_2_and_names_debug(
    cli: Any, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(_: object) -> None:
        message = "oh\nno"
        raise KeyError(message)

    monkeypatch.setattr("riverlock.cli.status.collect", breaks)

    done = cli("status", shop)
    with_trace = cli("status", shop, "--debug")

    assert done.code == with_trace.code == 2
    assert "internal error: KeyError" in done.err
    assert "--debug" in done.err
    assert "Traceback" not in done.err
    assert "Traceback" in with_trace.err


def _modules(*words: object) -> tuple[int, set[str]]:
    code = (
        "import sys, json\n"
        "from riverlock.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as e: code = e.code\n"
        "print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        text=True,
        check=True,
    )
    code, names = json.loads(done.stderr.splitlines()[-1])
    return int(code), set(names)


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["state"],
        ["state", "velocity", "spent", "--key", "ann"],
        ["snapshots"],
        ["verify"],
    ],
)
def test_commands_on_stores_need_no_engine(shop: Path, words: list[str]) -> None:
    name, *rest = words

    code, loaded = _modules(name, shop, *rest)

    assert code == 0
    heavy = {"pyspark", "lmdb", "riverlock.engines", "riverlock.worker"}
    assert not loaded & heavy


def test_help_loads_next_to_nothing() -> None:
    _, loaded = _modules("--help")

    heavy = {"pyspark", "pyarrow", "numpy", "rich", "msgspec"}
    flows = {"riverlock.flow.flow", "riverlock.program", "riverlock.operators"}
    assert not loaded & (heavy | flows)


def _completions(words: list[str], incomplete: str) -> list[str]:
    complete = ShellComplete(main, {}, "riverlock", "_RIVERLOCK_COMPLETE")
    return [c.value for c in complete.get_completions(words, incomplete)]


def test_completion_knows_commands_operators_and_state(shop: Path) -> None:
    assert _completions([], "sna") == ["snapshots", "snapshot"]
    assert _completions(["state", str(shop)], "v") == ["velocity"]
    assert _completions(["state", str(shop), "velocity"], "s") == ["seen", "spent"]
    assert _completions(["state", str(shop / "none")], "v") == []


def test_output_that_nobody_reads_is_no_error(shop: Path) -> None:
    code = "import riverlock.cli as c; c.main()"
    words = [sys.executable, "-c", code, "state", str(shop), "velocity"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == ""
