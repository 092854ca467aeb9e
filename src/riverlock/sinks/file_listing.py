"""What a directory of output files says of itself: whose it is, and its epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import InvalidConfigError, StorageNotFoundError
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from riverlock.sinks.committer import Owner
    from riverlock.storage.base import Storage

__all__ = [
    "epoch_folder",
    "file_of",
    "is_owned",
    "listing",
    "listing_path",
    "named",
    "own",
]

_OWNER = "_riverlock/owner.json"


def own(root: Storage, owner: Owner, path: str) -> dict[str, str]:
    """Take a directory for a sink; returns the mark that says so.

    Raises:
        InvalidConfigError: The directory belongs to another flow or store.
    """
    mine = {"flow": owner.flow, "sink": owner.sink}
    if root.put_if_absent(_OWNER, msgspec.json.encode(mine)):
        return mine
    found = msgspec.json.decode(root.get(_OWNER))
    if found != mine:
        raise InvalidConfigError(
            f"output directory {path}",
            expected=f"one that sink {owner.sink!r} of this store has made",
            found=f"the output of sink {found.get('sink')!r} of another store",
            hint="choose another directory, or remove this one",
        )
    return mine


def is_owned(root: Storage, mine: dict[str, str]) -> bool:
    """Tell whether a directory has the mark of a sink."""
    try:
        found = msgspec.json.decode(root.get(_OWNER))
    except StorageNotFoundError:
        return False
    return bool(found == mine)


def epoch_folder(epoch: int) -> str:
    """Return the folder of an epoch's files."""
    return f"epoch={epoch:012d}"


def listing_path(epoch: int) -> str:
    """Return where an epoch's files are listed, once all are there."""
    return f"_riverlock/{epoch:012d}.json"


def file_of(token: dict[str, Any], epoch: int) -> tuple[Storage, str]:
    """Return where a file of an epoch is, in its folder or not yet committed."""
    root = open_storage(token["root"])
    committed = f"{epoch_folder(epoch)}/{token['name']}"
    return root, committed if root.exists(committed) else token["staged"]


def listing(epoch: int, tokens: tuple[Any, ...]) -> bytes:
    """Return the list of an epoch's files."""
    files = [
        {
            "path": f"{epoch_folder(epoch)}/{name}",
            **{fact: token[fact] for fact in ("rows", "bytes", "checksum")},
        }
        for name, token in named(tokens).items()
    ]
    return msgspec.json.encode({"epoch": epoch, "files": files})


def named(tokens: tuple[Any, ...]) -> dict[str, Any]:
    """Return tokens by the names of their files, which are made unique.

    Stagers give each file a name of its own, but an epoch that is decided must be
    committed whatever its tokens say.
    """
    found: dict[str, Any] = {}
    for token in tokens:
        name, number = token["name"], 0
        while name in found:
            number += 1
            stem, dot, suffix = token["name"].rpartition(".")
            name = f"{stem}-{number}{dot}{suffix}"
        found[name] = token
    return found
