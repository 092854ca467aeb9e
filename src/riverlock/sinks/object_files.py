"""Files in an object store, which can rename nothing: a listing decides.

An epoch's files are copied into place one after the other, then a listing of them is
put. Names are those of the attempts that were voted for, so that a repeated commit
writes the same files again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riverlock.core.errors import CommitRejectedError, StorageNotFoundError
from riverlock.sinks.file_listing import (
    check_tokens,
    epoch_folder,
    is_listed,
    is_owned,
    listed_commit,
    listing,
    listing_path,
    named,
    own,
)
from riverlock.sinks.file_past import check_claim, check_kept, take
from riverlock.sinks.reaching import reach
from riverlock.sinks.stagers import STAGED
from riverlock.sinks.withdrawal import WITHDRAWN, is_withdrawal, withdraw
from riverlock.snapshot.past import commit_of
from riverlock.storage.local import LocalStorage
from riverlock.storage.object import ObjectStorage
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from riverlock.sinks.committer import Owner
    from riverlock.sinks.files import FileSink
    from riverlock.snapshot.records import SinkOutput

__all__ = ["ObjectFileCommitter", "withdraw_at"]

_FOLDER = re.compile(r"epoch=(\d+)/.+")


@dataclass
class ObjectFileCommitter:
    """Copies an epoch's files into place, then lists them."""

    sink: FileSink
    guarantee: str = (
        "exactly once; an epoch's files appear one after the other, and its listing in"
        " _riverlock/ when all are there"
    )
    # What marks places of this sink.
    mine: dict[str, str] = field(default_factory=dict)
    owner: Owner | None = None

    def probe(self) -> None:
        """Look whether the object store answers; change nothing.

        Raises:
            SinkUnavailableError: It does not.
        """
        reach(self.sink.path)

    def open(self, owner: Owner) -> None:
        """Take the directory for this run; epochs of other stores are moved aside.

        Raises:
            InvalidConfigError: The directory belongs to another flow or store.
            FencedError: A newer run has it.
            CommitRejectedError: It lacks epochs that it had.
        """
        check_kept(self.sink.path, owner)
        self.mine = own(ObjectStorage(self.sink.path), owner, self.sink.path)
        self.owner = owner
        take(self.sink.path, owner)

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Copy what was voted for, list it, and sweep what was staged."""
        if not output.tokens:
            return
        # If the sink was given another place since, the epoch goes to the old one.
        path = output.tokens[0].get("root", self.sink.path)
        if is_withdrawal(output.tokens):
            self._withdraw(output.tokens)
        elif "://" in path:
            check_tokens(path, epoch, output.tokens)
            if self.owner is not None and path == self.sink.path:
                check_claim(ObjectStorage(path), self.owner)
            _commit_objects(path, epoch, output, self.owner)
        else:
            self._commit_in_directory(path, epoch, output)

    def _withdraw(self, tokens: tuple[Any, ...]) -> None:
        for token in tokens:
            root = token.get("root", self.sink.path)
            if not withdraw_at(root, self.mine, token):
                # It was moved or copied here.
                withdraw_at(self.sink.path, self.mine, token)

    def _commit_in_directory(self, path: str, epoch: int, output: SinkOutput) -> None:
        from riverlock.sinks.committers import FileCommitter

        if not is_owned(LocalStorage(Path(path)), self.mine):
            what = f"it was decided to go to {path}, which is not there any more"
            raise CommitRejectedError(self.sink.path, epoch=epoch, what=what)
        FileCommitter(replace(self.sink, path=path)).commit(epoch, output)


def _commit_objects(
    path: str, epoch: int, output: SinkOutput, owner: Owner | None
) -> None:
    root = ObjectStorage(path)
    if not is_listed(root, epoch, output, owner):
        for name, token in named(output.tokens).items():
            try:
                root.copy(token["staged"], f"{epoch_folder(epoch)}/{name}")
            except StorageNotFoundError as error:
                if is_listed(root, epoch, output, owner):
                    break  # another run was faster, and has swept
                what = f"staged file {path}/{token['staged']} is gone"
                raise CommitRejectedError(path, epoch=epoch, what=what) from error
        listed = listing(epoch, output.tokens, output.run)
        if not root.put_if_absent(listing_path(epoch), listed):
            _take_copies(root, epoch, output)
    for entry in list(root.list(STAGED)):
        if int(entry.path.removeprefix(STAGED).split("/")[0]) <= epoch:
            root.delete(entry.path)


def _take_copies(root: ObjectStorage, epoch: int, output: SinkOutput) -> None:
    """Delete what was copied, if the epoch was withdrawn while we slept.

    Or if another copy of the store has listed one of that number.
    """
    found = listed_commit(epoch, root.get(listing_path(epoch)))
    is_withdrawn = root.get(listing_path(epoch)) == listing(epoch, ())
    if is_withdrawn or not found.matches(commit_of(epoch, output)):
        for name in named(output.tokens):
            root.delete(f"{epoch_folder(epoch)}/{name}")


def withdraw_at(root: str, mine: dict[str, str], token: dict[str, Any]) -> bool:
    """Move epochs of a place, of either kind; False if it is not ours any more."""
    if not is_owned(open_storage(root), mine):
        return False
    if "://" in root:
        _withdraw(ObjectStorage(root), token)
    else:
        withdraw(Path(root), token)
    return True


def _withdraw(root: ObjectStorage, token: dict[str, Any]) -> None:
    """Take epochs out of readers' sight, or back; the listing goes first, comes last.

    May be repeated: what is moved already stays so.
    """
    for first, last in token["withdraw"]:
        for epoch in range(first, last + 1):
            _take_listing(root, epoch)
        # Also of an epoch whose commit a crash cut off: it was never listed.
        for path in _files(root, first, last):
            _move(root, path, _away(path))
    for first, last in token.get("reinstate") or ():
        # Only what was whole when it went.
        for epoch in _listed(root, first, last, below=f"{WITHDRAWN}/"):
            for entry in list(root.list(_away(f"{epoch_folder(epoch)}/"))):
                _move(root, entry.path, entry.path.removeprefix(f"{WITHDRAWN}/"))
            _move(root, _away(listing_path(epoch)), listing_path(epoch))


def _take_listing(root: ObjectStorage, epoch: int) -> None:
    """Move the listing of an epoch away, and leave an empty one in its place.

    A run that slept in its commit of the epoch can list it no more: the place is taken.
    """
    path, empty = listing_path(epoch), listing(epoch, ())
    while not root.put_if_absent(path, empty):
        if root.get(path) == empty:
            return
        _move(root, path, _away(path))


def _away(path: str) -> str:
    return f"{WITHDRAWN}/{path}"


def _listed(root: ObjectStorage, first: int, last: int, below: str = "") -> list[int]:
    folder = f"{below}_riverlock/"
    names = (
        e.path.removeprefix(folder).removesuffix(".json") for e in root.list(folder)
    )
    return [int(n) for n in names if n.isdecimal() and first <= int(n) <= last]


def _files(root: ObjectStorage, first: int, last: int) -> list[str]:
    """Return the files of epochs, listed or not."""
    folders = (_FOLDER.match(entry.path) for entry in root.list())
    return [
        found.string for found in folders if found and first <= int(found[1]) <= last
    ]


def _move(root: ObjectStorage, source: str, target: str) -> None:
    root.copy(source, target)
    root.delete(source)
