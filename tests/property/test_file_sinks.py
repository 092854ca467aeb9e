"""No schedule of backups, copies, restores and crashes loses or doubles rows of files.

Stores are copied and put back, each runs epochs to one output directory, goes back to
older epochs, and dies between any two accesses. Whichever store has opened the output
last: its readers see the rows that led to its newest epoch, each once, or the store was
refused.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from tests.property.file_outputs import REFUSED, Backup, Died, Outputs, Store

from riverlock.core.errors import CommitRejectedError, InvalidConfigError


class FilesInADirectory(RuleBasedStateMachine):
    is_object = False

    def __init__(self) -> None:
        super().__init__()
        self.outputs = Outputs(is_object=self.is_object)
        self.backups: list[Backup] = []
        self.outputs.run(self.outputs.stores[0], 3)

    def teardown(self) -> None:
        try:
            for store in self.outputs.stores * 2:
                self.run_to_the_end(store, 1)
                self.go_back_if_need_be(store)
        finally:
            self.outputs.close()

    def live(self, act: Callable[[], object], dies: int | None = None) -> None:
        """Do something, and maybe die before the access of that number."""
        machine = self.outputs.machine
        machine.left = dies
        try:
            act()
        except (Died, *REFUSED, InvalidConfigError):
            pass
        except CommitRejectedError as error:
            # A copy that has the same run has swept it. Nothing is lost: see teardown.
            if "is gone" not in str(error):
                raise
        finally:
            machine.left = None

    def run_to_the_end(self, store: Store, epochs: int) -> None:
        self.live(lambda: self.outputs.start(store))
        for _ in range(epochs):
            self.live(lambda: self.outputs.epoch(store))

    def go_back_if_need_be(self, store: Store) -> None:
        """Do as the error of a lost file says."""
        epochs = store.catalog.epochs()
        if store.run is None and len(epochs) > 1:
            self.live(lambda: self.outputs.restore(store, epochs[-2]))
            self.outputs.start(store)

    def some(self, data: st.DataObject) -> Store:
        return data.draw(st.sampled_from(self.outputs.stores), label="store")

    @rule(data=st.data(), dies=st.none() | st.integers(0, 60))
    def a_store_starts(self, data: st.DataObject, dies: int | None) -> None:
        store = self.some(data)
        self.live(lambda: self.outputs.start(store), dies)
        if dies is not None:
            store.run = store.committer = None

    @rule(data=st.data(), dies=st.none() | st.integers(0, 25))
    def an_epoch(self, data: st.DataObject, dies: int | None) -> None:
        store = self.some(data)
        self.live(lambda: self.outputs.epoch(store), dies)
        if dies is not None:
            store.run = store.committer = None

    @rule(data=st.data(), epochs=st.integers(1, 4))
    def a_run(self, data: st.DataObject, epochs: int) -> None:
        self.run_to_the_end(self.some(data), epochs)

    @rule(data=st.data(), dies=st.none() | st.integers(0, 60))
    def a_restore(self, data: st.DataObject, dies: int | None) -> None:
        store = self.some(data)
        if epochs := store.catalog.epochs():
            target = data.draw(st.sampled_from(epochs), label="epoch")
            self.live(lambda: self.outputs.restore(store, target), dies)

    @rule(data=st.data(), keep=st.integers(1, 3))
    def old_epochs_are_deleted(self, data: st.DataObject, keep: int) -> None:
        catalog = self.some(data).catalog
        for epoch in catalog.epochs()[:-keep]:
            catalog.storage.delete(catalog.paths.manifest(epoch))

    @rule(data=st.data())
    def a_backup_is_made(self, data: st.DataObject) -> None:
        self.backups = [*self.backups[-2:], self.outputs.backup(self.some(data))]

    @precondition(lambda self: self.backups)
    @rule(data=st.data())
    def a_backup_is_put_back(self, data: st.DataObject) -> None:
        backup = data.draw(st.sampled_from(self.backups), label="backup")
        self.outputs.put_back(self.some(data), backup)

    @precondition(lambda self: self.backups and len(self.outputs.stores) < 3)
    @rule(data=st.data())
    def a_copy_is_made(self, data: st.DataObject) -> None:
        backup = data.draw(st.sampled_from(self.backups), label="backup")
        self.outputs.copy(backup)


class FilesInAnObjectStore(FilesInADirectory):
    is_object = True


for _machine in (FilesInADirectory, FilesInAnObjectStore):
    _machine.TestCase.settings = settings(
        max_examples=25, stateful_step_count=20, deadline=None
    )
TestFilesInADirectory = FilesInADirectory.TestCase
TestFilesInAnObjectStore = FilesInAnObjectStore.TestCase
