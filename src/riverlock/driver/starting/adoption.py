"""Shows snapshots that other code has left as this code sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from riverlock.snapshot.format.requests import pending_changes
from riverlock.snapshot.format.stored_parameters import with_changes

if TYPE_CHECKING:
    from riverlock.change.upgrade import Upgrade
    from riverlock.snapshot.catalog import Catalog
    from riverlock.snapshot.format.records import Manifest, Run
    from riverlock.stages.compiled import CompiledFlow

__all__ = ["Adoption", "adopted", "upgrade_of"]


def upgrade_of(catalog: Catalog, compiled: CompiledFlow, newest: Manifest) -> Upgrade:
    """Return what becomes of the operators of a snapshot, and of pending changes.

    Raises:
        InvalidConfigError: What the flow says of renamed operators makes no sense.
    """
    changes = pending_changes(catalog, newest)
    operators = with_changes(newest.operators, changes, epoch=newest.epoch + 1)
    return compiled.upgrade(operators, catalog.storage)


def adopted(
    catalog: Catalog, compiled: CompiledFlow, found: Manifest, token: str
) -> Manifest:
    """Return a snapshot as the code sees it; what it needs is written beside it.

    Raises:
        StateSchemaError: The code cannot continue from it; nothing was touched.
        RiverlockError: A migration function or the storage failed.
    """
    upgrade_of(catalog, compiled, found).check()
    upgrade = compiled.upgrade(found.operators, catalog.storage)
    layouts = {s.id: s.program.layout() for s in compiled.keyed}
    rewritten = upgrade.rewritten(catalog, found, layouts)
    return upgrade.adopted(found, rewritten, token)


@dataclass
class Adoption:
    """Adopts what earlier runs have decided, each epoch once."""

    catalog: Catalog
    compiled: CompiledFlow
    owner: Run
    _known: dict[int, Manifest] = field(default_factory=dict)

    def __call__(self, found: Manifest) -> Manifest:
        """Return a snapshot as this code sees it.

        Raises:
            RiverlockError: See ``adopted``.
        """
        if found.run == self.owner.run:
            return found
        if found.epoch not in self._known:
            made = adopted(self.catalog, self.compiled, found, self.owner.token)
            self._known = {found.epoch: made}
        return self._known[found.epoch]
