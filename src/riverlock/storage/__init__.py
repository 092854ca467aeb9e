"""Files of a store: get, put, put if absent, list, delete; on disk or object store."""

from __future__ import annotations

from riverlock.storage.base import Entry, Reason, Storage
from riverlock.storage.local import LocalStorage
from riverlock.storage.open import open_storage

__all__ = ["Entry", "LocalStorage", "Reason", "Storage", "open_storage"]
