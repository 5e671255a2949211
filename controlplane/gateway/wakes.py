"""When a wake has to be stored: once for a herd, again while somebody waits. Pure.

A stored wake holds for `LIFETIME` seconds, so that nobody's demand outlives the caller by
much; while somebody waits it is renewed well before it ends.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from controlplane.domain.phases import Phase

LIFETIME = 60.0
RENEW_AFTER = 20.0


@dataclass(slots=True)
class Wanted:
    """`phase` is what the route showed when the wake was wanted."""

    deployment_id: str
    phase: Phase
    wanted_at: float
    lifetime: float
    held: bool
    stored: bool = False


class Wakes:
    def __init__(self) -> None:
        self._wanted: dict[str, Wanted] = {}

    def want(
        self,
        deployment_id: str,
        phase: Phase,
        now: float,
        *,
        held: bool = True,
        lifetime: float = LIFETIME,
    ) -> bool:
        """A request asks for the deployment. True when that makes a new wake to store: none
        is wanted yet, it has to be renewed, or the deployment fell asleep after it."""
        wanted = self._wanted.get(deployment_id)
        if wanted is not None and not self._again(wanted, phase, now):
            wanted.held = wanted.held or held
            return False
        self._wanted[deployment_id] = Wanted(deployment_id, phase, now, lifetime, held)
        return True

    def due(self) -> list[Wanted]:
        """The wakes that are not stored yet."""
        return [w for w in self._wanted.values() if not w.stored]

    def over(self, deployment_id: str) -> None:
        """Nobody waits for the deployment any more: the next request is another herd."""
        wanted = self._wanted.get(deployment_id)
        if wanted is not None and wanted.held:
            del self._wanted[deployment_id]

    def expire(self, now: float, waiting: Collection[str]) -> None:
        """Forget wakes whose time is over and that nobody waits for."""
        for wanted in list(self._wanted.values()):
            age, waited = now - wanted.wanted_at, wanted.deployment_id in waiting
            if not waited and age >= (RENEW_AFTER if wanted.stored else wanted.lifetime):
                del self._wanted[wanted.deployment_id]

    @staticmethod
    def _again(wanted: Wanted, phase: Phase, now: float) -> bool:
        if not wanted.stored:
            return False
        fell_asleep = phase is Phase.ASLEEP and wanted.phase is not Phase.ASLEEP
        return fell_asleep or now - wanted.wanted_at >= RENEW_AFTER
