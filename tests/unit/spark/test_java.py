"""Which Java is taken, and what the shim does to its arguments."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from riverlock.core.errors import InvalidConfigError
from riverlock.spark import java


def fake_java(home: Path, version: str, *, with_release: bool = False) -> Path:
    """A program that tells a version and prints its arguments, one per line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2\n'
        'else for each in "$@"; do echo "<$each>"; done; fi\n'
    )
    program.chmod(0o755)
    if with_release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "find_spec", lambda _: None)


def run_shim(home: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("with_release", [False, True])
@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("25-ea", 25)]
)
def test_java_home_is_taken_when_new_enough(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    major: int,
    with_release: bool,
) -> None:
    home = fake_java(tmp_path / "jdk", version, with_release=with_release)
    monkeypatch.setenv("JAVA_HOME", str(home))

    found = java.find_java()

    assert found == java.Java(
        executable=home / "bin" / "java", major=major, origin="JAVA_HOME"
    )


def test_path_is_taken_when_java_home_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_452")
    new = fake_java(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))

    home = java.ensure_java()

    assert os.environ["JAVA_HOME"] == str(home) != str(old)
    assert run_shim(home, "x") == ["<x>"]


def test_environment_is_left_alone_when_spark_would_find_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "jdk", "17") / "bin"))

    java.ensure_java()

    assert "JAVA_HOME" not in os.environ


def test_no_java_says_what_was_found_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))

    with pytest.raises(InvalidConfigError) as caught:
        java.ensure_java()

    assert "(11, by JAVA_HOME)" in str(caught.value)
    assert "riverlock[java]" in caught.value.hint


def test_java_home_without_a_program_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java.find_java() is None


def test_shim_drops_the_one_argument_and_keeps_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "odd 'name", "17")))

    home = java.ensure_java()

    kept = ["-cp", "a b", "", "--add-modules=other", "*", "it's", "$HOME", "-D\\x"]
    dropped = "--add-modules=jdk.incubator.vector"
    assert run_shim(home, kept[0], dropped, *kept[1:]) == [f"<{each}>" for each in kept]


def test_shim_is_private_and_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "17")))

    home = java.ensure_java()
    first = (home / "bin" / "java").stat()
    again = java.ensure_java()

    assert again == home
    assert (home / "bin" / "java").stat().st_ino == first.st_ino
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]
    for path in (home.parent, home, home / "bin", home / "bin" / "java"):
        assert path.stat().st_mode & 0o077 == 0


def test_shim_that_was_changed_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "17")))
    home = java.ensure_java()
    (home / "bin" / "java").write_text("#!/bin/sh\necho tampered\n")

    home = java.ensure_java()

    assert run_shim(home, "x") == ["<x>"]


def test_shim_goes_elsewhere_when_the_cache_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "17")))
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    home = java.ensure_java()

    assert run_shim(home, "x") == ["<x>"]
