"""Processes are killed here, machines are not: nothing needs to reach the disk."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
