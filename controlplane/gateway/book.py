"""The routes and keys in force here, and what follows when new ones are taken. Pure."""

from __future__ import annotations

from collections.abc import Callable

from controlplane.gateway.keyring import Keyring
from controlplane.gateway.routes import RouteTable


class Book:
    """`changed` is called, once the new table is in force, with the ids of the deployments
    that differ in it."""

    def __init__(self) -> None:
        self.table, self.keys = RouteTable(0, ()), Keyring()
        self.loaded = False
        self._fresh = False
        self.changed: Callable[[set[str]], None] = lambda ids: None

    @property
    def shown_epoch(self) -> int:
        """The epoch that a heartbeat may show: 0 from when the database was lost until
        everything was loaded afresh."""
        return self.table.epoch if self._fresh else 0

    def take(self, table: RouteTable, keys: Keyring) -> None:
        """From here on every choice is made by `table`; a choice and its count are one step,
        so what was chosen before is counted before this epoch can be shown."""
        before, self.table, self.keys = self.table, table, keys
        self.loaded = self._fresh = True
        self.changed(_differing(before, table))

    def lost(self) -> None:
        """The database can't be heard: serve on with what is known, and claim no epoch."""
        self._fresh = False


def _differing(before: RouteTable, after: RouteTable) -> set[str]:
    ids = {r.id for r in before} | {r.id for r in after}
    return {i for i in ids if before.by_id(i) != after.by_id(i)}
