"""Output of files when a store is put back or copied, and processes die on the way."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.property.file_outputs import Died, Outputs, Store

from riverlock.connectors.files import listing
from riverlock.core.errors import ForeignEpochError
from riverlock.storage.open import open_storage


@pytest.fixture(params=[False, True], ids=["directory", "objects"])
def outputs(request: pytest.FixtureRequest) -> Iterator[Outputs]:
    made = Outputs(is_object=request.param)
    yield made
    made.close()


def _branches(outputs: Outputs) -> tuple[Store, Store]:
    """Return a store whose output a copy of it has taken."""
    first = outputs.stores[0]
    outputs.run(first, 3)
    second = outputs.copy(outputs.backup(first))
    outputs.run(first, 2)
    outputs.run(second, 3)
    return first, second


def _gone_back(outputs: Outputs) -> tuple[Store, Store]:
    """Return a store that a restore has changed since, and one from before it."""
    first = outputs.stores[0]
    outputs.run(first, 4)
    second = outputs.copy(outputs.backup(first))
    outputs.restore(first, 1)
    outputs.run(first, 1)
    return second, first


@pytest.mark.parametrize("scene", [_branches, _gone_back])
@pytest.mark.parametrize("who", [0, 1], ids=["itself", "the other"])
@pytest.mark.parametrize("is_object", [False, True], ids=["directory", "objects"])
def test_a_start_that_dies_at_any_access_is_completed_or_undone(
    scene: Callable[[Outputs], tuple[Store, Store]], who: int, *, is_object: bool
) -> None:
    deaths = 0
    while True:
        outputs = Outputs(is_object=is_object)
        try:
            both = scene(outputs)
            outputs.machine.left = deaths
            try:
                outputs.start(both[0])
                break
            except Died:
                outputs.machine.left = None
                outputs.run(both[who], 1)
                outputs.run(both[1 - who], 1)
        finally:
            outputs.close()
        deaths += 1
    assert deaths > 20


def test_an_epoch_that_lost_to_another_copy_is_refused_and_stays_staged(
    outputs: Outputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other lists its own between our look and our listing."""
    first = outputs.stores[0]
    outputs.run(first, 2)
    assert first.committer is not None
    assert first.run is not None
    theirs = outputs.staged(2, first.run)
    module = first.committer.__class__.__module__
    data = listing.listing(2, theirs.tokens, "another")

    def list_another(*_: object) -> bytes:
        place = open_storage(outputs.sink.path)
        place.put(listing.listing_path(2), data)
        return b"{}"

    monkeypatch.setattr(f"{module}.listing", list_another)
    with pytest.raises(ForeignEpochError):
        outputs.epoch(first)
    monkeypatch.undo()

    ours = first.catalog.resolve(None).outputs["out"].tokens
    place = open_storage(outputs.sink.path)
    assert all(place.exists(token["staged"]) for token in ours)


def test_what_others_staged_is_not_swept(outputs: Outputs) -> None:
    first, second = _branches(outputs)
    outputs.start(first)
    assert first.run is not None
    outputs.machine.left = None
    parent = first.catalog.resolve(None)
    waiting = outputs.staged(parent.epoch + 1, first.run)

    outputs.run(second, 4)

    place = open_storage(outputs.sink.path)
    assert all(place.exists(token["staged"]) for token in waiting.tokens)


def test_a_backup_that_is_put_back_right_after_a_restore(outputs: Outputs) -> None:
    store = outputs.stores[0]
    outputs.run(store, 6)
    backup = outputs.backup(store)
    outputs.restore(store, 2)
    outputs.put_back(store, backup)
    outputs.run(store, 1)


def test_what_was_undone_long_ago_does_not_come_back(outputs: Outputs) -> None:
    store = outputs.stores[0]
    outputs.run(store, 4)
    outputs.restore(store, 1)
    for _ in range(40):
        outputs.run(store, 1)
    backup = outputs.backup(store)
    outputs.run(store, 1)
    outputs.put_back(store, backup)
    outputs.run(store, 1)


def test_a_backup_that_goes_back_before_it_starts(outputs: Outputs) -> None:
    """The restored epoch has the number of one that is lost."""
    store = outputs.stores[0]
    outputs.run(store, 3)
    backup = outputs.backup(store)
    outputs.epoch(store)
    outputs.epoch(store)
    outputs.put_back(store, backup)
    outputs.restore(store, 0)
    outputs.restore(store, 1)
    outputs.run(store, 2)


def test_a_backup_from_between_two_restores(outputs: Outputs) -> None:
    """What it has undone was shown again since."""
    store = outputs.stores[0]
    outputs.run(store, 5)
    outputs.restore(store, 1)
    outputs.run(store, 1)
    backup = outputs.backup(store)
    outputs.restore(store, 4)
    outputs.run(store, 1)
    outputs.put_back(store, backup)
    outputs.run(store, 1)


def test_two_restores_of_two_copies_undo_epochs_of_one_number(outputs: Outputs) -> None:
    first, second = _branches(outputs)
    outputs.restore(second, 1)
    outputs.start(second)
    outputs.start(first)
    outputs.restore(first, 2)
    outputs.start(first)
    outputs.restore(first, 4)
    outputs.run(first, 1)
    outputs.run(second, 1)


def test_taking_a_directory_looks_at_each_epoch_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: Counter[int] = Counter()
    for epochs in (10, 40):
        outputs = Outputs(is_object=False)
        first = outputs.stores[0]
        outputs.run(first, epochs)
        second = outputs.copy(outputs.backup(first))
        outputs.run(second, 1)

        def counted(path: Path, epochs: int = epochs) -> Iterator[Path]:
            looks[epochs] += 1
            return (path / entry.name for entry in os.scandir(path))

        with monkeypatch.context() as patched:
            patched.setattr(Path, "iterdir", counted)
            outputs.start(first)
        outputs.close()
    assert looks[10] == looks[40]
