"""How many requests are in flight where, and how long ago each deployment was last active.

A count goes up with a `Flight` and down with its end, which happens once whatever way the
request leaves; so no path can leak or count twice. Pure: times are passed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

RECENT_SECONDS = 60.0


class Flight:
    """One request at one replica, from before it is sent until its end."""

    __slots__ = ("_counts", "_ended", "deployment_id", "target")

    def __init__(self, counts: Counts, deployment_id: str, target: str) -> None:
        self._counts, self._ended = counts, False
        self.deployment_id, self.target = deployment_id, target

    def __enter__(self) -> Flight:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, at: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Give the count back. A second call does nothing."""
        if not self._ended:
            self._ended = True
            self._counts._landed(self)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a heartbeat says, and when on our clock it was true."""

    taken_at: float
    activity: Mapping[str, Any]


class Counts:
    def __init__(self) -> None:
        self._flights: dict[str, Counter[str]] = {}
        self._touched: dict[str, float] = {}

    def begin(self, deployment_id: str, target: str, now: float) -> Flight:
        self._flights.setdefault(deployment_id, Counter())[target] += 1
        self.touch(deployment_id, now)
        return Flight(self, deployment_id, target)

    def touch(self, deployment_id: str, now: float) -> None:
        """A byte, an arrival, an end: the deployment was active at `now`."""
        self._touched[deployment_id] = now

    def at(self, deployment_id: str, target: str) -> int:
        flights = self._flights.get(deployment_id)
        return flights[target] if flights else 0

    def in_flight(self) -> dict[str, int]:
        """Requests in flight by deployment; those with none are left out."""
        return {d: sum(flights.values()) for d, flights in self._flights.items()}

    def snapshot(self, now: float, held: Mapping[str, int]) -> Snapshot:
        """Every deployment with requests in flight or held, or active of late."""
        activity = {}
        for deployment_id in self._touched.keys() | held.keys() | self._flights.keys():
            touched = self._touched.get(deployment_id, now)
            flights = self._flights.get(deployment_id, Counter())
            activity[deployment_id] = {
                "in_flight": sum(flights.values()),
                "held": held.get(deployment_id, 0),
                "age_ms": max(0, round((now - touched) * 1000)),
                "replicas": dict(flights),
            }
        return Snapshot(now, activity)

    def stored(self, snapshot: Snapshot) -> None:
        """`snapshot` is in the database. What it showed as old is forgotten; what was never
        shown is kept, however old: activity during an outage still counts."""
        for deployment_id, said in snapshot.activity.items():
            quiet = said["in_flight"] == said["held"] == 0
            old = said["age_ms"] >= RECENT_SECONDS * 1000
            if quiet and old and self._touched.get(deployment_id, 0.0) <= snapshot.taken_at:
                self._touched.pop(deployment_id, None)

    def _landed(self, flight: Flight) -> None:
        flights = self._flights[flight.deployment_id]
        flights[flight.target] -= 1
        if not flights[flight.target]:
            del flights[flight.target]
        if not flights:
            del self._flights[flight.deployment_id]
