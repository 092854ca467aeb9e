from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from riverlock.core.errors import InvalidConfigError
from riverlock.storage import LocalStorage, open_storage
from riverlock.storage.object import ObjectStorage


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}", "file://localhost{}"])
def test_directory_opens_by_path_and_by_uri(tmp_path: Path, form: str) -> None:
    storage = open_storage(form.format(tmp_path / "a"))

    assert storage == LocalStorage(tmp_path / "a")
    assert open_storage(storage.uri) == storage


def test_directory_with_odd_characters_opens_again_by_its_uri(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "a b%20é#?")

    assert open_storage(storage.uri) == storage


def test_relative_path_is_fixed_when_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert open_storage("store/") == LocalStorage(tmp_path / "store")


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ("s3://bucket/a/", "s3://bucket/a"),
        ("s3a://bucket/a", "s3://bucket/a"),
        ("gs://bucket", "gs://bucket"),
        ("az://box/a", "az://box/a"),
    ],
)
def test_object_store_opens_by_url(given: str, uri: str) -> None:
    storage = open_storage(given)

    assert storage == ObjectStorage(uri)
    assert open_storage(storage.uri) == storage


@pytest.mark.parametrize("where", ["", "ftp://host/a", "hdfs://host/a", "file://nas/a"])
def test_unknown_storage_is_refused_with_what_works(where: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        open_storage(where)

    assert "s3://" in str(caught.value)


def test_secrets_do_not_show() -> None:
    storage = ObjectStorage("s3://b/a", options={"secret_access_key": "hunter2"})

    assert "hunter2" not in repr(storage)


def test_local_storage_does_not_load_obstore() -> None:
    code = (
        "import sys, riverlock.storage as s; s.open_storage('x'); "
        "sys.exit('obstore' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
