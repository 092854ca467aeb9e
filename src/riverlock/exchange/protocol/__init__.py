"""Pure rules of the exchange between tasks: events in, instructions out."""

from __future__ import annotations

from riverlock.exchange.protocol.task import TaskProtocol

__all__ = ["TaskProtocol"]
