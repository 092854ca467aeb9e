"""Snapshots as data: relations over the state of any retained epoch, without Spark."""

from __future__ import annotations

from riverlock.query.relation import Relation
from riverlock.query.snapshot import Snapshot
from riverlock.query.store import Store, open_store

__all__ = ["Relation", "Snapshot", "Store", "open_store"]
