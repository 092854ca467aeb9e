"""The functions that calls name, by the name they have in the compiled form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riverlock.columnar.kernels import (
    arithmetic,
    comparison,
    nested,
    number_casts,
    rounding,
    strings,
    text_casts,
    times,
)
from riverlock.columnar.kernels.kernel import Kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["KERNELS", "Kernel"]

KERNELS: Mapping[str, Kernel] = {
    **arithmetic.KERNELS,
    **comparison.KERNELS,
    **nested.KERNELS,
    **number_casts.KERNELS,
    **rounding.KERNELS,
    **strings.KERNELS,
    **text_casts.KERNELS,
    **times.KERNELS,
}
