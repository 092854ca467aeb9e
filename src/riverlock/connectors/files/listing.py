"""What a directory of output files records about itself: its owner and its epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from riverlock.core.errors import (
    CommitRejectedError,
    ForeignEpochError,
    InvalidConfigError,
    StorageNotFoundError,
)
from riverlock.core.values.known_types import known
from riverlock.snapshot.past import Commit, commit_of, digest_of
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.connectors.base.committer import Owner
    from riverlock.snapshot.format.records import SinkOutput
    from riverlock.storage.base import Storage

__all__ = [
    "check_tokens",
    "epoch_folder",
    "file_of",
    "foreign",
    "is_inside",
    "is_listed",
    "is_owned",
    "is_withdrawal",
    "listed_commit",
    "listed_names",
    "listing",
    "listing_path",
    "named",
    "own",
    "owner_of",
    "staged_gone",
]

_OWNER = "_riverlock/owner.json"


def own(root: Storage, owner: Owner, path: str) -> dict[str, str]:
    """Take a directory for a sink; return the mark that says so.

    Raises:
        InvalidConfigError: The directory belongs to another flow or store.
    """
    mine = owner.mark
    if root.put_if_absent(_OWNER, msgspec.json.encode(mine)):
        return mine
    found = msgspec.json.decode(root.get(_OWNER))
    if found != mine:
        raise foreign(path, owner.sink, found, origin=owner.origin)
    return mine


def owner_of(root: Storage) -> dict[str, str] | None:
    """Return the mark of the sink that a directory belongs to."""
    try:
        found: dict[str, str] = msgspec.json.decode(root.get(_OWNER))
    except StorageNotFoundError:
        return None
    return found


def foreign(
    path: str, sink: str, found: Mapping[str, str], *, origin: str | None
) -> InvalidConfigError:
    """Return the error for an output directory that another sink writes to.

    Args:
        path: The directory.
        sink: The sink that was to write there.
        found: The mark of the sink that does.
        origin: The flow that this one was forked from.
    """
    whose = (
        "the store that this one was forked from"
        if found.get("flow") == origin
        else "another store"
    )
    return InvalidConfigError(
        f"output directory {path}",
        expected=f"one that sink {sink!r} of this store has made",
        found=f"the output of sink {found.get('sink')!r} of {whose}",
        hint="nothing was changed there, and it may be in use: give this sink another"
        " directory; to continue the flow that writes there, start with its store",
    )


def is_owned(root: Storage, mine: dict[str, str]) -> bool:
    """Tell whether a directory has the mark of a sink."""
    return owner_of(root) == mine


def epoch_folder(epoch: int) -> str:
    """Return the folder of an epoch's files."""
    return f"epoch={epoch:012d}"


def listing_path(epoch: int) -> str:
    """Return where an epoch's files are listed, once all exist."""
    return f"_riverlock/{epoch:012d}.json"


def file_of(token: dict[str, Any], epoch: int) -> tuple[Storage, str]:
    """Return where a file of an epoch is, in its folder or not yet committed."""
    root = open_storage(token["root"])
    committed = f"{epoch_folder(epoch)}/{token['name']}"
    return root, committed if root.exists(committed) else token["staged"]


def listing(epoch: int, tokens: tuple[Any, ...], run: str = "") -> bytes:
    """Return the list of an epoch's files, and what identifies the epoch.

    Args:
        epoch: Its number.
        tokens: Of its files; none: a listing that only blocks the place of another.
        run: The token of the run that decided it.
    """
    files = [
        {
            "path": f"{epoch_folder(epoch)}/{name}",
            **{fact: token[fact] for fact in ("rows", "bytes", "checksum")},
        }
        for name, token in named(tokens).items()
    ]
    told = {"run": run, "digest": digest_of(tokens)} if tokens else {}
    return msgspec.json.encode({"epoch": epoch, "files": files, **told})


def listed_commit(epoch: int, data: bytes) -> Commit:
    """Return what a listing says about its epoch; people may have written it."""
    try:
        found = msgspec.json.decode(data, type=known(_Told))
    except msgspec.MsgspecError:
        found = _Told()
    return Commit(epoch=epoch, run=found.run, digest=found.digest)


def listed_names(epoch: int, data: bytes) -> set[str]:
    """Return the files that a listing names, below the epoch's folder."""
    folder = f"{epoch_folder(epoch)}/"
    try:
        found = msgspec.json.decode(data, type=known(_Told))
    except msgspec.MsgspecError:
        return set()
    return {file.path.removeprefix(folder) for file in found.files}


def is_listed(
    root: Storage, epoch: int, output: SinkOutput, owner: Owner | None
) -> bool:
    """Tell whether this very epoch is there, and not another with its number.

    Raises:
        ForeignEpochError: Another one is.
    """
    try:
        found = listed_commit(epoch, root.get(listing_path(epoch)))
    except StorageNotFoundError:
        return False
    if not found.matches(commit_of(epoch, output)):
        raise ForeignEpochError(
            "files" if owner is None else owner.sink,
            place=root.uri,
            epoch=epoch,
            newest=None if owner is None else owner.past.newest,
        )
    return True


def check_tokens(place: str, epoch: int, tokens: tuple[Any, ...]) -> None:
    """Refuse tokens that lead out of the output directory.

    Ours never do: the store comes from somebody else, or was altered.

    Raises:
        CommitRejectedError: One does; nothing was written.
    """
    for token in tokens:
        for name in (token["name"], token["staged"]):
            if not is_inside(name):
                raise CommitRejectedError(
                    place,
                    epoch=epoch,
                    what=f"its manifest names the file {name!r}, which is not inside"
                    " the output directory; nothing was written: where is this store"
                    " from?",
                )


def staged_gone(path: str, epoch: int, staged: str) -> CommitRejectedError:
    """Return the error for an epoch that has lost a file before its commit."""
    what = (
        f"staged file {path}/{staged} is gone; put it back, or go back to the epoch"
        " before, from which its rows are made again (riverlock restore"
        f" STORE@{epoch - 1}), or give up its rows by creating the file"
        f" {path}/{listing_path(epoch)}"
    )
    return CommitRejectedError(path, epoch=epoch, what=what)


def is_withdrawal(tokens: tuple[Any, ...]) -> bool:
    """Tell whether tokens order a withdrawal, in place of naming files."""
    return any("withdraw" in token for token in tokens)


def is_inside(name: str) -> bool:
    """Tell whether a name leads to a file below the folder it is looked up in."""
    return "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


class _File(msgspec.Struct, frozen=True):
    path: str


class _Told(msgspec.Struct, frozen=True):
    run: str = ""
    digest: str = ""
    files: tuple[_File, ...] = ()


def named(tokens: tuple[Any, ...]) -> dict[str, Any]:
    """Return tokens by the names of their files, made unique.

    Stagers use a name of its own for each file, but a decided epoch must be committed
    whatever its tokens say.
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
