"""Do the sinks of a flow fit what a store has decided for them?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.core.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from riverlock.snapshot.records import Manifest

__all__ = ["check_outputs"]


def check_outputs(newest: Manifest, kinds: Mapping[str, str]) -> None:
    """Check that each sink can commit the newest epoch once more.

    Args:
        newest: The manifest that a start has every sink commit again.
        kinds: The kind of each sink of the flow, by its uid.

    Raises:
        InvalidConfigError: A sink has become one of another kind, which would not
            understand what was staged for it.
    """
    for uid, output in newest.outputs.items():
        kind = kinds.get(uid, output.kind)
        if kind != output.kind:
            raise InvalidConfigError(
                f"sink {uid!r} of kind {kind!r}",
                expected=f"kind {output.kind!r}, as in epoch {newest.epoch}",
                found=f"{kind!r}",
                hint="give the new sink another uid",
            )
