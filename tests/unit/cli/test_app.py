from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from riverlock.cli.app import App, find_flow, load, parse
from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.flow.flow import Flow

HEAD = "import riverlock as rl\n"


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Callable[..., App]]:
    before, path = set(sys.modules), list(sys.path)

    def write(text: str, name: str = "pipeline.py") -> App:
        file = tmp_path / name
        file.write_text(HEAD + text)
        return parse(str(file))

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def _flow(app: App, name: str | None = None) -> Flow:
    return find_flow(load(app), name)


def test_parse_takes_file_and_name(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()

    assert parse(f"{tmp_path}/a.py").name is None
    assert parse(f"{tmp_path}/a.py:shop") == App(
        file=(tmp_path / "a.py").resolve(), name="shop"
    )


@pytest.mark.parametrize("given", ["none.py", "none.py:flow", "."])
def test_parse_refuses_what_is_no_file(given: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parse(given)

    assert "riverlock new" in caught.value.hint


def test_the_only_flow_is_found_whatever_its_name(app: Callable[..., App]) -> None:
    assert _flow(app("shop = rl.Flow('a')\nagain = shop\n")).name == "a"


def test_a_file_changed_within_the_same_second_is_loaded_as_it_is_now(
    app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    loaded = []
    for name in ("a", "b"):
        written = app(f"flow = rl.Flow('{name}')\n")
        os.utime(written.file, (1_000_000_000, 1_000_000_000))
        loaded.append(_flow(written).name)
        del sys.modules["pipeline"]

    assert loaded == ["a", "b"]


def test_what_is_no_source_file_is_refused(app: Callable[..., App]) -> None:
    with pytest.raises(InvalidConfigError, match="a Python file"):
        load(app("", name="pipeline.txt"))


def test_named_flow_is_found_among_several(app: Callable[..., App]) -> None:
    found = _flow(app("one = rl.Flow('a')\ntwo = rl.Flow('b')\n"), "two")

    assert found.name == "b"


def test_several_flows_are_named_in_the_error(app: Callable[..., App]) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        _flow(app("one = rl.Flow('a')\ntwo = rl.Flow('b')\n"))

    assert "one, two" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "def build():\n    return rl.Flow('made')\n",
        "def anything() -> rl.Flow:\n    return rl.Flow('made')\n",
        "def flow(name='made'):\n    return rl.Flow(name)\ndef other(x): pass\n",
    ],
)
def test_the_only_maker_is_called(app: Callable[..., App], text: str) -> None:
    assert _flow(app(text)).name == "made"


def test_named_function_is_called_even_if_not_typed(app: Callable[..., App]) -> None:
    text = "def anything():\n    return rl.Flow('made')\n"

    assert _flow(app(text), "anything").name == "made"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", None),
        ("x = 3\n", "x"),
        ("f = rl.Flow('a')\n", "g"),
        ("def build():\n    return 3\n", None),
    ],
)
def test_no_flow_is_a_clear_error(
    app: Callable[..., App], text: str, name: str | None
) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        _flow(app(text), name)

    assert "Flow" in caught.value.__dict__["expected"]


def test_error_in_the_file_names_its_line(app: Callable[..., App]) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        load(app("x = 1\ny = x / 0\n"))

    assert "ZeroDivisionError" in str(caught.value)
    assert "pipeline.py:3: y = x / 0" in str(caught.value)


def test_syntax_error_is_told(app: Callable[..., App]) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        load(app("def f(:\n"))

    assert "SyntaxError" in str(caught.value)
    assert "line 2" in str(caught.value)


def test_our_own_errors_pass_as_they_are(app: Callable[..., App]) -> None:
    with pytest.raises(InvalidFlowError):
        load(app("rl.Flow('no spaces please')\n"))


def test_main_guard_is_not_run_and_neighbours_are_found(
    app: Callable[..., App], tmp_path: Path
) -> None:
    (tmp_path / "neighbour_of_app.py").write_text("NAME = 'next-door'\n")
    text = (
        "import neighbour_of_app\nf = rl.Flow(neighbour_of_app.NAME)\n"
        "if __name__ == '__main__':\n    1 / 0\n"
    )

    assert _flow(app(text)).name == "next-door"


@pytest.mark.parametrize("name", ["json.py", "my-app.py"])
def test_file_name_never_hides_another_module(
    app: Callable[..., App], name: str
) -> None:
    import json

    module = load(app("f = rl.Flow('a')\n", name))

    assert sys.modules["json"] is json
    assert sys.modules[module.__name__] is module
