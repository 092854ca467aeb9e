"""Moves output of undone epochs out of readers' sight, or back (format §6.1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from riverlock.connectors.base.committer import Owner
from riverlock.connectors.files.listing import is_owned, is_withdrawal
from riverlock.connectors.files.moves import Arrangement, Goal, block
from riverlock.connectors.files.past_epochs import is_others, take
from riverlock.connectors.files.places import place_at
from riverlock.snapshot.past import StorePast
from riverlock.storage.open import open_storage

if TYPE_CHECKING:
    from riverlock.connectors.files.places import Listed
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["withdraw", "withdraw_all", "withdraw_now"]


def withdraw_now(catalog: Catalog, manifest: Manifest) -> None:
    """Carry out the withdrawals of a manifest, where the directories are known."""
    for uid, output in manifest.outputs.items():
        if not is_withdrawal(output.tokens):
            continue
        owner = Owner(
            flow=manifest.flow,
            sink=uid,
            run=manifest.run,
            token=manifest.history[-1][1] if manifest.history else "",
            past=StorePast(catalog, manifest),
        )
        for token in output.tokens:
            root = token.get("root")
            if root is not None and "://" not in root:
                _withdraw_there(root, token, owner)


def withdraw_all(here: str, tokens: tuple[Any, ...], owner: Owner) -> None:
    """Carry out an order here, at the owner's place, and in places it had before.

    Where another copy of the store writes by now, nothing is changed.
    """
    for token in tokens:
        root = token.get("root", here)
        if root == here or not is_owned(open_storage(root), owner.mark):
            withdraw(here, token, owner)  # it may have been moved or copied here
        else:
            _withdraw_there(root, token, owner)


def _withdraw_there(root: str, token: dict[str, Any], owner: Owner) -> None:
    """Carry out an order at a place of ours, unless others have it by now.

    We take it first, so that a copy of the store from before has to check where epochs
    are.
    """
    storage = open_storage(root)
    if is_owned(storage, owner.mark) and not is_others(storage, owner):
        take(root, owner)
        withdraw(root, token, owner)


def withdraw(root: str, token: dict[str, Any], owner: Owner) -> None:
    """Move epochs out of sight, or back; may be repeated.

    Raises:
        ForeignEpochError: An epoch that is to come back is there already, another one.
    """
    if "://" not in root and not Path(root).is_dir():
        return
    place = place_at(root)
    away = [tuple(span) for span in token["withdraw"]]
    back = [tuple(span) for span in token.get("reinstate") or ()]

    def goal(listed: Listed) -> Goal:
        if not owner.past.has(listed.commit, owner.sink):
            return Goal.LEFT
        return Goal.HIDDEN if _is_in(listed.epoch, away) else Goal.SHOWN

    def arrange() -> None:
        Arrangement(
            place,
            goal,
            concerns=lambda epoch: _is_in(epoch, [*away, *back]),
            sink=owner.sink,
        ).carry_out()

    arrange()
    for epoch in (e for a, b in away for e in range(a, b + 1) if "://" in root):
        # One who slept in a commit may just have listed it.
        while not block(place, epoch):
            arrange()


def _is_in(epoch: int, spans: list[tuple[Any, ...]]) -> bool:
    return any(first <= epoch <= last for first, last in spans)
