"""What a gateway serves from: one immutable table a time, swapped as a whole. Pure."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from controlplane.domain.deployment import Wake
from controlplane.domain.phases import Desired, Phase

_GONE = frozenset({Phase.STOPPING, Phase.DELETED})
_MOST_COMPARED = 500
_DEFAULT_WAKE = Wake()


@dataclass(frozen=True, slots=True)
class Target:
    """A replica that requests may go to. `key` is how heartbeats name it: `<slot>-<hash>`."""

    key: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class Route:
    """What is known of one deployment. `start_seconds` is how long its last start took."""

    id: str
    workspace: str
    name: str
    phase: Phase
    desired: Desired = Desired.RUNNING
    reason: str | None = None
    message: str = ""
    hint: str = ""
    wake: Wake = _DEFAULT_WAKE
    targets: tuple[Target, ...] = ()
    engine_key: str = field(default="", repr=False)
    created: int = 0
    start_seconds: float | None = None

    @property
    def gone(self) -> bool:
        """True when, for a caller, there is no such model any more."""
        return self.phase in _GONE or (self.desired is Desired.DELETED and not self.targets)


class RouteTable:
    """All routes as of one epoch. Nothing in it ever changes."""

    __slots__ = ("_by_id", "_by_name", "epoch")

    def __init__(self, epoch: int, routes: Iterable[Route]) -> None:
        self.epoch = epoch
        self._by_id = {r.id: r for r in routes}
        self._by_name = {(r.workspace, r.name): r for r in self._by_id.values()}

    def __iter__(self) -> Iterator[Route]:
        return iter(self._by_id.values())

    def by_id(self, deployment_id: str) -> Route | None:
        return self._by_id.get(deployment_id)

    def find(self, workspace: str, name: str) -> Route | None:
        """The deployment that `name` means in `workspace`; one that is going is not there."""
        route = self._by_name.get((workspace, name))
        return None if route is None or route.gone else route

    def listed(self, workspace: str) -> list[Route]:
        """Every declared deployment of the workspace, asleep ones too."""
        return [r for r in self._by_id.values() if r.workspace == workspace and not r.gone]

    def near(self, workspace: str, name: str) -> list[str]:
        """At most three names of the workspace that `name` may have been meant as."""
        names = [r.name for r in self.listed(workspace)[:_MOST_COMPARED]]
        return difflib.get_close_matches(name[:60].lower(), names, n=3, cutoff=0.6)


def choose(
    targets: Sequence[Target],
    in_flight: Callable[[Target], int],
    left_out: Collection[str] = (),
    pick: Callable[[Sequence[Target]], Target] = random.choice,
) -> Target | None:
    """The target with the least requests in flight, ties by chance, those in `left_out`
    not looked at; None when none is left."""
    open_targets = [t for t in targets if t.key not in left_out]
    if len(open_targets) < 2:
        return open_targets[0] if open_targets else None
    least = min(in_flight(t) for t in open_targets)
    return pick([t for t in open_targets if in_flight(t) == least])
