"""What only a directory can suffer: full disks, failed syncs, links, modes."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from riverlock.core.errors import StorageError
from riverlock.storage import LocalStorage, Reason


@dataclass(frozen=True)
class FailingStorage(LocalStorage):
    """Fails the n-th write or sync with an error of the system."""

    fail_write_at: int = 0
    fail_sync_at: int = 0
    error: int = errno.EIO
    log: list[str] = field(default_factory=list)

    def _write(self, descriptor: int, data: bytes) -> None:
        self.log.append("write")
        if self.log.count("write") == self.fail_write_at:
            os.write(descriptor, data[: len(data) // 2])
            raise OSError(self.error, os.strerror(self.error))
        super()._write(descriptor, data)

    def _sync(self, descriptor: int) -> None:
        self.log.append("sync")
        if self.log.count("sync") == self.fail_sync_at:
            raise OSError(self.error, os.strerror(self.error))
        super()._sync(descriptor)


def reason_of(error: pytest.ExceptionInfo[StorageError]) -> object:
    return error.value.reason


def temporary_files(root: Path) -> list[Path]:
    return list((root / ".tmp").iterdir())


def test_put_on_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path,
) -> None:
    storage = FailingStorage(tmp_path, fail_write_at=2, error=errno.ENOSPC)
    storage.put("a", b"old")

    with pytest.raises(StorageError) as caught:
        storage.put("a", b"new and half written")

    assert reason_of(caught) == Reason.FULL
    assert caught.value.retryable
    assert storage.get("a") == b"old"
    assert temporary_files(tmp_path) == []


def test_put_if_absent_on_a_full_disk_leaves_the_name_free(tmp_path: Path) -> None:
    storage = FailingStorage(tmp_path, fail_write_at=1, error=errno.ENOSPC)

    with pytest.raises(StorageError):
        storage.put_if_absent("a", b"data")

    assert not storage.exists("a")
    assert storage.put_if_absent("a", b"data")


def test_failed_sync_abandons_the_file_and_is_not_repeated(tmp_path: Path) -> None:
    storage = FailingStorage(tmp_path, fail_sync_at=1)

    with pytest.raises(StorageError) as caught:
        storage.put_if_absent("a", b"data")

    assert reason_of(caught) == Reason.SYNC_FAILED
    assert storage.log == ["write", "sync"]
    assert not storage.exists("a")
    assert temporary_files(tmp_path) == []


def test_sync_that_reports_a_full_disk_says_so(tmp_path: Path) -> None:
    storage = FailingStorage(tmp_path, fail_sync_at=1, error=errno.ENOSPC)

    with pytest.raises(StorageError) as caught:
        storage.put("a", b"data")

    assert reason_of(caught) == Reason.FULL


def test_failed_directory_sync_leaves_the_outcome_to_be_read_back(
    tmp_path: Path,
) -> None:
    storage = FailingStorage(tmp_path, fail_sync_at=2)

    with pytest.raises(StorageError) as caught:
        storage.put_if_absent("a", b"data")

    assert reason_of(caught) == Reason.SYNC_FAILED
    assert storage.get("a") == b"data"


def test_make_durable_fails_when_the_sync_does(tmp_path: Path) -> None:
    storage = FailingStorage(tmp_path, fail_sync_at=1)
    (tmp_path / "a").write_bytes(b"data")

    with pytest.raises(StorageError) as caught:
        storage.make_durable("a")

    assert reason_of(caught) == Reason.SYNC_FAILED


def test_put_syncs_the_file_then_every_new_directory(tmp_path: Path) -> None:
    storage = FailingStorage(tmp_path / "new")

    storage.put("a/b/c", b"data")

    # Three directories made (new, a, b), the file, the directory of the file.
    assert storage.log == ["sync"] * 3 + ["write"] + ["sync"] * 2


def test_loser_syncs_what_it_found(tmp_path: Path) -> None:
    LocalStorage(tmp_path).put("a", b"winner")
    storage = FailingStorage(tmp_path)

    assert not storage.put_if_absent("a", b"loser")

    assert storage.log == ["write", "sync", "sync"]


def test_temporary_directory_is_private_and_unlisted(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("a", b"data")
    (tmp_path / ".tmp" / "left-behind").write_bytes(b"x")

    assert (tmp_path / ".tmp").stat().st_mode & 0o777 == 0o700
    assert [entry.path for entry in storage.list()] == ["a"]


def test_symbolic_link_does_not_lead_out_of_the_root(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"x")
    root = tmp_path / "root"
    root.mkdir()
    (root / "door").symlink_to(outside)

    with pytest.raises(StorageError) as caught:
        LocalStorage(root).get("door/secret")

    assert reason_of(caught) == Reason.INVALID_PATH


def test_root_that_is_a_symbolic_link_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    LocalStorage(tmp_path / "link").put("a", b"x")

    assert (tmp_path / "real" / "a").read_bytes() == b"x"


def test_root_does_not_move_with_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage(Path("store"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    storage.put("a", b"x")

    assert (tmp_path / "store" / "a").exists()


def test_file_in_the_way_of_a_directory_is_reported(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("a", b"x")

    with pytest.raises(StorageError) as caught:
        storage.put("a/b", b"x")

    assert reason_of(caught) == Reason.INVALID_PATH
    assert not storage.exists("a/b")
