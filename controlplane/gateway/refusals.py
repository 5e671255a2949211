"""Replicas that refused a connection, left out for a growing while. Pure."""

from __future__ import annotations

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 3.0


class Refusals:
    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._length: dict[str, float] = {}

    def note(self, endpoint: str, now: float) -> None:
        """`endpoint` refused: leave it out, each time in a row for twice as long. Requests
        that were refused together count once."""
        if now < self._until.get(endpoint, 0.0):
            return
        length = min(self._length.get(endpoint, FIRST_SECONDS / 2) * 2, LONGEST_SECONDS)
        self._length[endpoint], self._until[endpoint] = length, now + length

    def clear(self, endpoint: str) -> None:
        """`endpoint` answered."""
        if endpoint in self._length:
            del self._length[endpoint], self._until[endpoint]

    def left_out(self, endpoint: str, now: float) -> float:
        """For how many seconds more `endpoint` is left out; 0: it isn't."""
        return max(0.0, self._until.get(endpoint, 0.0) - now)

    def keep(self, endpoints: set[str]) -> None:
        """Forget all but `endpoints`, the ones that routes still name."""
        for endpoint in self._length.keys() - endpoints:
            self.clear(endpoint)
