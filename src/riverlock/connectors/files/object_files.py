"""Files in an object store, which cannot rename: a listing decides.

An epoch's files are copied into place one after the other, then a listing of them is
put. Names are those of the attempts that were voted for, so that a repeated commit
writes the same files again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from riverlock.connectors.files.listing import (
    check_tokens,
    epoch_folder,
    is_listed,
    is_owned,
    is_withdrawal,
    listed_commit,
    listing,
    listing_path,
    named,
    own,
    staged_gone,
)
from riverlock.connectors.files.past_epochs import (
    check_claim,
    check_kept,
    check_listed,
    take,
)
from riverlock.connectors.files.reachable import reach
from riverlock.connectors.files.staged_files import sweep_staged
from riverlock.connectors.withdrawal import withdraw_all
from riverlock.core.errors import (
    CommitRejectedError,
    FencedError,
    StorageNotFoundError,
)
from riverlock.snapshot.past import commit_of
from riverlock.storage.local import LocalStorage
from riverlock.storage.object import ObjectStorage

if TYPE_CHECKING:
    from riverlock.connectors.base.committer import Owner
    from riverlock.connectors.files.sink import FileSink
    from riverlock.snapshot.format.records import SinkOutput

__all__ = ["ObjectFileCommitter"]


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
    # The newest epoch that this run has seen in the directory.
    _seen: int | None = None

    def probe(self) -> None:
        """Check that the object store answers; change nothing.

        Raises:
            SinkUnavailableError: It does not.
        """
        reach(self.sink.path)

    def open(self, owner: Owner) -> None:
        """Take the directory for this run; move epochs of other copies out of sight.

        Raises:
            InvalidConfigError: The directory belongs to another flow or store.
            FencedError: A newer run has it.
            CommitRejectedError: It lacks epochs that it had.
        """
        check_kept(self.sink.path, owner)
        self.mine = own(ObjectStorage(self.sink.path), owner, self.sink.path)
        self.owner = owner
        take(self.sink.path, owner)
        if owner.past.newest is not None:
            # All before it are committed; tasks that were overtaken staged these late.
            sweep_staged(self.sink.path, owner.past.newest - 1, owner)

    def commit(self, epoch: int, output: SinkOutput) -> None:
        """Copy what was voted for, list it, and sweep what was staged."""
        if not output.tokens:
            return
        # If the sink was given another place since, the epoch goes to the old one.
        path = output.tokens[0].get("root", self.sink.path)
        if is_withdrawal(output.tokens):
            assert self.owner is not None
            withdraw_all(self.sink.path, output.tokens, self.owner)
            self._seen = None
        elif "://" in path:
            check_tokens(path, epoch, output.tokens)
            self._check_claim(path)
            if self.owner is not None and self._seen is not None:
                # It may have gone back under this run.
                check_listed(self.sink.path, self._seen, self.owner)
            if not is_listed(ObjectStorage(path), epoch, output, self.owner):
                self._copy(path, epoch, output)
            if path == self.sink.path:
                self._seen = epoch
            sweep_staged(path, epoch, self.owner, output.run)
        else:
            self._commit_in_directory(path, epoch, output)

    def _check_claim(self, path: str) -> None:
        """Stop if another run has taken the place; do not take a former place."""
        if self.owner is not None and path == self.sink.path:
            check_claim(ObjectStorage(path), self.owner)

    def _copy(self, path: str, epoch: int, output: SinkOutput) -> None:
        """Copy an epoch's files and list them, unless others are listed."""
        root = ObjectStorage(path)
        for name, token in named(output.tokens).items():
            try:
                root.copy(token["staged"], f"{epoch_folder(epoch)}/{name}")
            except StorageNotFoundError as error:
                if is_listed(root, epoch, output, self.owner):
                    return  # another run was faster, and has swept
                raise staged_gone(path, epoch, token["staged"]) from error
        try:
            self._check_claim(path)
        except FencedError:
            _give_way(root, epoch, output)
            raise
        listed = listing(epoch, output.tokens, output.run)
        if not root.put_if_absent(listing_path(epoch), listed):
            _give_way(root, epoch, output)
            # Another copy of the store may have one of that number.
            is_listed(root, epoch, output, self.owner)

    def _commit_in_directory(self, path: str, epoch: int, output: SinkOutput) -> None:
        from riverlock.connectors.builtin_committers import FileCommitter

        if not is_owned(LocalStorage(Path(path)), self.mine):
            what = f"it was decided to go to {path}, which no longer exists"
            raise CommitRejectedError(self.sink.path, epoch=epoch, what=what)
        FileCommitter(replace(self.sink, path=path)).commit(epoch, output)


def _give_way(root: ObjectStorage, epoch: int, output: SinkOutput) -> None:
    """Remove the copies if another listing has taken the place of theirs.

    The epoch was withdrawn while we slept, or belongs to another copy of the store.
    What we have staged stays. Where nothing is listed, a newer run may copy the same
    files.
    """
    try:
        found = root.get(listing_path(epoch))
    except StorageNotFoundError:
        return
    is_same = listed_commit(epoch, found).matches(commit_of(epoch, output))
    if found == listing(epoch, ()) or not is_same:
        for name in named(output.tokens):
            root.delete(f"{epoch_folder(epoch)}/{name}")
