"""Going back with one region of several, while the others stay where they are.

That is possible as long as no other region has read what would be undone, and the
region can still read again what others had sent it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidConfigError
from riverlock.snapshot.claims import check_stopped
from riverlock.snapshot.format.channels import channel_ends, channels_of
from riverlock.snapshot.timeline import spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest

__all__ = ["check_alone", "has_led_to"]


def has_led_to(epoch: int, manifest: Manifest) -> bool:
    """Tell whether an epoch is, or led to, one of the same region; -1 is none."""
    return epoch < 0 or any(a <= epoch <= b for a, b in spans(manifest))


def check_alone(catalog: Catalog, target: Manifest) -> None:
    """Refuse a way back of one region that would not fit the others.

    Args:
        catalog: The region.
        target: The epoch to go back to.

    Raises:
        InvalidConfigError: Another region has read what would be undone, or is not
            where it was; the error names the snapshots that would do.
        FencedError: A region that reads this one runs: it may be about to read more.
    """
    for reader in dict.fromkeys(r for _, r, _ in channels_of(catalog.resolve(None))):
        if reader != catalog.region:
            check_stopped(catalog.of(reader))
    problem = next(_problems(catalog, target), None)
    if problem is None:
        return
    whole = [
        named.name
        for named in catalog.snapshots()
        if named.regions.keys() >= set(catalog.regions())
    ]
    hint = "nothing was changed; "
    if whole:
        hint += f"go back with all regions, to {' or '.join(whole)}: leave out --region"
    else:
        hint += "there is no snapshot of all regions to go back to"
    raise InvalidConfigError(
        f"restore of region {catalog.region!r} alone to epoch {target.epoch}",
        expected="regions that have read nothing of what would be undone",
        found=problem,
        hint=hint,
    )


def _problems(catalog: Catalog, target: Manifest) -> Iterator[str]:
    """Yield what does not fit."""
    region = catalog.region
    for name in dict.fromkeys(r for _, r, _ in channels_of(catalog.resolve(None))):
        reader = catalog.of(name).newest()
        for _, writer, channel, end in () if reader is None else channel_ends(reader):
            if writer == region != name and not has_led_to(end - 1, target):
                yield f"region {name!r} has read epoch {end - 1} of channel {channel!r}"
    for _, writer, channel, end in channel_ends(target):
        newest = None if writer == region else catalog.of(writer).newest()
        if newest is not None and not has_led_to(end - 1, newest):
            yield (
                f"region {writer!r} went back since: epoch {end - 1} of channel"
                f" {channel!r} was undone"
            )
