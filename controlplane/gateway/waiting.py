"""Who waits for which deployment. Bounded in places and in bytes; pure but for the bell."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import StrEnum
from types import TracebackType


class Bound(StrEnum):
    """Which bound keeps a request from being held."""

    PLACES = "places"
    BYTES = "bytes"


class Place:
    """One held request. `bell` rings when something that it waits for may have changed."""

    __slots__ = ("_left", "_room", "bell", "deployment_id", "size")

    def __init__(self, room: WaitingRoom, deployment_id: str, size: int) -> None:
        self._room, self._left = room, False
        self.deployment_id, self.size, self.bell = deployment_id, size, asyncio.Event()

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Give the place back. A second call does nothing."""
        if not self._left:
            self._left = True
            self._room._left(self)


class WaitingRoom:
    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._bytes, self.closed = most_bytes, 0, False
        self._herds: dict[str, set[Place]] = {}

    def enter(self, deployment_id: str, size: int, most: int) -> Place | Bound:
        """A place for a request of `size` bytes, or the bound that it would break: `most`
        places for its deployment, or this process's bytes."""
        herd = self._herds.get(deployment_id, set())
        if len(herd) >= most:
            return Bound.PLACES
        if self._bytes + size > self._most_bytes:
            return Bound.BYTES
        place = Place(self, deployment_id, size)
        self._herds.setdefault(deployment_id, set()).add(place)
        self._bytes += size
        return place

    def held(self) -> dict[str, int]:
        """Held requests by deployment; those with none are left out."""
        return {d: len(herd) for d, herd in self._herds.items()}

    def waits(self, deployment_id: str) -> bool:
        return deployment_id in self._herds

    def ring(self, deployment_ids: Iterable[str]) -> None:
        """Let the herds of these deployments look again."""
        for deployment_id in deployment_ids:
            for place in self._herds.get(deployment_id, ()):
                place.bell.set()

    def close(self) -> None:
        """This process ends: whoever waits is told, and nobody is held any more."""
        self.closed = True
        self.ring(list(self._herds))

    def _left(self, place: Place) -> None:
        herd = self._herds[place.deployment_id]
        herd.discard(place)
        self._bytes -= place.size
        if not herd:
            del self._herds[place.deployment_id]
