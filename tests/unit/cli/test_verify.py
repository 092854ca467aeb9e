from __future__ import annotations

from pathlib import Path
from typing import Any


def _state_file(shop: Path, epoch: int) -> Path:
    return next((shop / "regions/main/state/velocity").glob(f"{epoch:012d}-*"))


def test_verify_whole_store(cli: Any, shop: Path) -> None:
    done = cli("verify", shop)

    assert done.code == 0
    assert "all 3 epochs, 0 to 2, are whole" in done.out
    assert cli("verify", shop, "--json").json["whole"] is True


def test_verify_names_damaged_file_and_newest_whole_epoch(cli: Any, shop: Path) -> None:
    damaged = _state_file(shop, 1)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)

    done = cli("verify", shop)

    assert done.code == 3
    assert damaged.name in done.err
    assert "epochs 1, 2" in done.err
    assert "newest whole epoch is 0" in done.err


def test_verify_json_of_a_missing_file(cli: Any, shop: Path) -> None:
    _state_file(shop, 2).unlink()

    done = cli("verify", shop, "--json")

    assert done.code == 3
    assert done.json["newest_whole"] == 1
    assert "no such file" in done.json["problems"][0]
    assert [e["whole"] for e in done.json["epochs"]] == [True, True, False]


def test_verify_sees_an_altered_manifest(cli: Any, shop: Path) -> None:
    manifest = shop / "regions/main/epochs/000000000002.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"seed":1', b'"seed":2'))

    done = cli("verify", shop)

    assert done.code == 3
    assert "newest whole epoch is 1" in done.err


def test_state_of_a_damaged_epoch_is_refused(cli: Any, shop: Path) -> None:
    _state_file(shop, 0).unlink()

    done = cli("state", shop, "velocity", "spent")

    assert done.code == 3
    assert "riverlock verify" in done.err
