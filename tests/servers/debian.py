"""Servers from the packages of Debian or Ubuntu, unpacked beside the environment.

Nothing is installed into the system, and root is not needed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest


def unpacked(name: str, *packages: str) -> Path:
    """Return the folder of the unpacked packages; fetches them once."""
    default = Path(sys.prefix) / "test-servers"
    cache = Path(os.environ.get("RIVERLOCK_TEST_SERVERS", default))
    cache.mkdir(parents=True, exist_ok=True)
    whole = cache / name
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not whole.exists():
            building = cache / f"{name}.part"
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir()
            _fetch(building, packages)
            building.rename(whole)
    return whole


def libraries(root: Path) -> dict[str, str]:
    """Return the environment in which a program finds what was unpacked with it."""
    places = [
        str(folder)
        for part in ("usr/lib", "lib")
        for folder in (root / part).glob("*-linux-gnu*")
    ]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(places)}


def _fetch(folder: Path, packages: tuple[str, ...]) -> None:
    names = ", ".join(packages)
    for program in ("apt-get", "apt-cache", "dpkg", "dpkg-query"):
        if shutil.which(program) is None:
            pytest.skip(f"{names} would be Debian packages: there is no {program}")
    if not _download(folder, packages):
        if os.geteuid() == 0:
            subprocess.run(["apt-get", "update"], check=False, capture_output=True)
        if not _download(folder, packages):
            pytest.skip(f"apt-get could not download {names}")
    missing = [n for n in _dependencies(packages) if not _is_installed(n)]
    if missing and not _download(folder, missing):
        pytest.skip(f"apt-get could not download {', '.join(missing)}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
        package.unlink()


def _download(folder: Path, packages: Sequence[str]) -> bool:
    done = subprocess.run(
        ["apt-get", "download", *packages],
        cwd=folder,
        check=False,
        capture_output=True,
    )
    return done.returncode == 0


def _dependencies(packages: tuple[str, ...]) -> list[str]:
    found = subprocess.run(
        ["apt-cache", "depends", *packages], check=True, capture_output=True, text=True
    )
    lines = (line.split() for line in found.stdout.splitlines())
    return sorted({words[1] for words in lines if words[0] == "Depends:"} - {*packages})


def _is_installed(package: str) -> bool:
    found = subprocess.run(
        ["dpkg-query", "--show", "--showformat=${Status}", package],
        check=False,
        capture_output=True,
        text=True,
    )
    return found.stdout.endswith(" installed")
