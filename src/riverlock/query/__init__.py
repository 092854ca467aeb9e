"""Snapshots as data: relations over the state of any retained epoch, without Spark."""

from __future__ import annotations

from riverlock.query.opened_store import Store, open_store
from riverlock.query.relation import Relation
from riverlock.query.snapshot import Snapshot

__all__ = ["Relation", "Snapshot", "Store", "open_store"]
