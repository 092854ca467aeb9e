"""Which directory a path was meant in."""

from __future__ import annotations

import pytest

from riverlock.core.paths import last_directory


@pytest.mark.parametrize(
    ("given", "meant", "directory"),
    [
        ("in", "/srv/shop/in", "/srv/shop"),
        ("./in/", "/srv/shop/in", "/srv/shop"),
        ("in/2026-*", "/srv/in/2026-*", "/srv"),
        ("in", "/in", "/"),
        (".", "/srv/shop", "/srv/shop"),
        ("/in", "/srv/in", None),
        ("~/in", "/home/me/in", None),
        ("../in", "/srv/shop/../in", "/srv/shop"),
        ("../in", "/srv/in", None),
        ("in", "/srv/begin", None),
        ("in", "/srv/other", None),
        ("s3://bucket/in", "/srv/in", None),
        ("", "/srv/in", None),
    ],
)
def test_last_directory(given: str, meant: str, directory: str | None) -> None:
    assert last_directory(given, meant) == directory
