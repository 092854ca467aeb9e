"""Tables to look rows up in: ``rl.tables.redis(...)``, for ``stream.join_static``.

They are read whole, in each epoch, and are no sources: nothing of them is replayed.
"""

from __future__ import annotations

from riverlock.connectors.redis.redis_table import redis

__all__ = ["redis"]
