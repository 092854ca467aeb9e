"""What a region has of its own: how fast it goes, and with how many tasks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from riverlock.core.errors import InvalidConfigError, InvalidFlowError
from riverlock.core.times import duration_us

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["Pace", "agreed"]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Options of a region that come before those of the run; None: as the run says.

    Attributes:
        parallelism: Tasks per keyed stage.
        max_rows_per_epoch: Rows an epoch takes at most.
        epoch_target: How long an epoch should take.
    """

    parallelism: int | Literal["auto"] | None = None
    max_rows_per_epoch: int | None = None
    epoch_target: str | timedelta | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        Raises:
            InvalidConfigError: Something does not.
        """
        if self.parallelism not in (None, "auto"):
            self._check_positive("parallelism", 'at least 1, or "auto"')
        self._check_positive("max_rows_per_epoch", "at least 1")
        if self.epoch_target is not None:
            duration_us(self.epoch_target)

    def _check_positive(self, name: str, expected: str) -> None:
        value = getattr(self, name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InvalidConfigError(
                f"region({name}=)", expected=expected, found=repr(value)
            )

    @property
    def given(self) -> dict[str, Any]:
        """What is not as the run says."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        """Return it as people write it."""
        return ", ".join(f"{name}={value!r}" for name, value in self.given.items())


def agreed(region: str, known: Pace | None, given: Pace) -> Pace:
    """Return the pace of a region that several streams enter.

    Raises:
        InvalidFlowError: Two of them want another one.
    """
    if known is None or not known.given:
        return given
    if not given.given or given == known:
        return known
    raise InvalidFlowError(
        f"region({region!r})",
        expected=f"the options that it was entered with before: {known}",
        found=str(given),
        hint="give them where the first stream enters it",
    )
