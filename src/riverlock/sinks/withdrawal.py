"""Takes output of undone epochs out of readers' sight, or back (format §6.1)."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core import faults

if TYPE_CHECKING:
    from collections.abc import Iterable

    from riverlock.snapshot.records import Manifest

__all__ = ["is_withdrawal", "withdraw", "withdraw_now"]

OWN = "_riverlock"
WITHDRAWN = f"{OWN}/withdrawn"
_FOLDER = re.compile(r"epoch=(\d+)")
_LISTING = re.compile(r"(\d+)\.json")


def is_withdrawal(tokens: tuple[Any, ...]) -> bool:
    """Tell whether tokens order a withdrawal, in place of naming files."""
    return any("withdraw" in token for token in tokens)


def withdraw(root: Path, token: dict[str, Any]) -> int:
    """Move folders and listings of epochs; returns how many folders were moved.

    May be repeated: what is moved already stays so.
    """
    if not root.is_dir():
        return 0
    away = root / WITHDRAWN
    moved = _move(root, away, token["withdraw"]) if token["withdraw"] else 0
    if token.get("reinstate") and away.is_dir():
        moved += _move(away, root, token["reinstate"])
    return moved


def withdraw_now(manifest: Manifest) -> None:
    """Carry out the withdrawals of a manifest, where the directories are known."""
    for uid, output in manifest.outputs.items():
        if not is_withdrawal(output.tokens):
            continue
        owner = {"flow": manifest.flow, "sink": uid}
        for token in output.tokens:
            root = token.get("root")
            if root is not None and _owner(Path(root)) == owner:
                withdraw(Path(root), token)


def _owner(root: Path) -> Any:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((root / OWN / "owner.json").read_bytes())
    return None


def _move(here: Path, there: Path, spans: Iterable[Any]) -> int:
    chosen = [tuple(span) for span in spans]
    folders = _chosen(here, _FOLDER, chosen)
    # The folder goes first: a listing without its folder says that it was here.
    listings = here if here.name == Path(WITHDRAWN).name else here / OWN
    target = there if there.name == Path(WITHDRAWN).name else there / OWN
    there.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        folder.rename(there / folder.name)
        faults.hit("V6")
    for listing in _chosen(listings, _LISTING, chosen):
        listing.replace(target / listing.name)
    for changed in {here, there, listings, target}:
        _sync(changed)
    return len(folders)


def _chosen(
    place: Path, name: re.Pattern[str], spans: list[tuple[Any, ...]]
) -> list[Path]:
    found = []
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        match = name.fullmatch(path.name)
        if match and any(a <= int(match[1]) <= b for a, b in spans):
            found.append(path)
    return found


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
