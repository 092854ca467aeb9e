"""Working copies in LMDB, and nothing else that knows LMDB."""

from riverlock.state.copy.lmdb.store import LmdbStore, close_all, close_below

__all__ = ["LmdbStore", "close_all", "close_below"]
