"""When the rows of a decided epoch are handed to sinks, and when not again.

An epoch keeps the guarantee that it was decided with, whatever the region promises by
now. `exactly once` and `at least once`: sinks commit it until they have it. `at most
once`: they are asked once, by the run that decided it. So its rows leave after the
decision: state and timers of an epoch whose rows have left are never run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import CommitRejectedError
from riverlock.core.guarantees import AT_MOST_ONCE

if TYPE_CHECKING:
    from riverlock.core.errors import SinkError
    from riverlock.snapshot.format.records import Manifest

__all__ = ["is_given_up", "settled_by_now"]


def settled_by_now(
    newest: Manifest, settled: frozenset[str], *, is_undelivered: bool
) -> frozenset[str]:
    """Return the sinks that do not get an epoch that was found in the store.

    Args:
        newest: The epoch.
        settled: Sinks that it was not decided for.
        is_undelivered: Whether nobody can have handed over any of its rows.
    """
    if newest.guarantee != AT_MOST_ONCE or is_undelivered:
        return settled
    return frozenset(newest.outputs)


def is_given_up(manifest: Manifest, error: SinkError) -> bool:
    """Tell whether a sink that has failed is not asked again, and the region goes on.

    One that refuses for good ends the run in any case: nothing will leave any more.
    """
    is_final = isinstance(error, CommitRejectedError)
    return manifest.guarantee == AT_MOST_ONCE and not is_final
