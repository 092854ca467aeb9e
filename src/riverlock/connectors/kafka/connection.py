"""How a Kafka cluster is reached; its secrets are never shown."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from confluent_kafka import KafkaError

__all__ = ["WAIT_SECONDS", "Connection", "connection_to", "may_pass"]

# How long an answer of the cluster is waited for.
WAIT_SECONDS: Final = 30.0
_SECRET: Final = re.compile(r"password|secret|token|pem|oauthbearer\.config|username")
# The client's own words go to the terminal; we say what went wrong ourselves.
_QUIET: Final = {"log_level": "2"}
_MAY_PASS: Final = frozenset(
    {
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_TIMED_OUT",
        "_MSG_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_RESOLVE",
        "_WAIT_COORD",
        "_UNKNOWN_BROKER",
        "_DESTROY",
        "_NOENT",  # no leader is known, while brokers come and go
        "BROKER_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "CONCURRENT_TRANSACTIONS",
        "FENCED_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "NOT_CONTROLLER",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NOT_LEADER_FOR_PARTITION",
        "OFFSET_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "UNKNOWN_LEADER_EPOCH",
    }
)


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A cluster and the client's settings for it; safe to print."""

    servers: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def settings(self, more: Mapping[str, object]) -> dict[str, Any]:
        """Return settings for a client: ours, then the user's, then the fixed ones."""
        return {**_QUIET, **self.options, "bootstrap.servers": self.servers, **more}

    def masked(self, text: str) -> str:
        """Return a text without the secrets of the settings."""
        for name, value in self.options.items():
            if value and _SECRET.search(name):
                text = text.replace(value, "***")
        return text


def connection_to(
    servers: str, options: Mapping[str, object] | None, *, fixed: Collection[str]
) -> Connection:
    """Return a connection, checked as far as possible without the cluster.

    Raises:
        InvalidConfigError: The client is not installed, or a setting is not the user's
            to choose.
    """
    if find_spec("confluent_kafka") is None:
        raise InvalidConfigError(
            "Kafka",
            expected="the package confluent-kafka",
            found="none installed",
            hint="pip install 'riverlock[kafka]'",
        )
    if not servers:
        raise InvalidConfigError(
            "kafka(servers=)", expected="'host:port,host:port'", found=repr(servers)
        )
    chosen = dict(options or {})
    wrong = sorted({"bootstrap.servers", *fixed} & chosen.keys())
    if wrong:
        raise InvalidConfigError(
            "kafka(options=)",
            expected="settings that do not change what riverlock promises",
            found=", ".join(wrong),
            hint="leave them out; they are fixed, or set by a parameter of kafka()",
        )
    return Connection(servers=servers, options={k: _text(v) for k, v in chosen.items()})


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def may_pass(error: KafkaError) -> bool:
    """Tell whether waiting may help: the network, or a cluster that is not ready."""
    return bool(error.retriable()) or error.name() in _MAY_PASS
