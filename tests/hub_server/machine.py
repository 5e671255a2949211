"""One machine's weights against a test hub: the real driver part and its real child."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic

from controlplane.hub.attempts import Attempt, Child
from controlplane.paths import DataDir
from controlplane.settings import Hub, Settings
from tests.hub_server.server import HubServer
from worker.drivers.base import WeightsOrder, WeightsSeen, WeightsState
from worker.drivers.local.weights import LocalWeights

DEADLINE = 60.0  # seconds; a condition that was not met by then never will be
BUSY = (WeightsState.ABSENT, WeightsState.FETCHING)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for `condition`; fails with `what` when it does not come."""
    end = monotonic() + DEADLINE
    while not condition():
        assert monotonic() < end, f"never happened: {what}"
        Event().wait(0.02)


def fingerprint(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every entry below `folder`: its mode, its times, its content or where it points."""
    found = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            content = "folder"
        found[str(path.relative_to(folder))] = (facts.st_mode, facts.st_mtime_ns, content)
    return found


@dataclass
class Machine:
    """`weights` is what a worker on it has; `again()` is the next worker's."""

    data_dir: Path
    hub: HubServer
    token: str | None = None
    shared_cache: Path | None = None
    registered: Mapping[str, str] = field(default_factory=dict)

    @property
    def data(self) -> DataDir:
        return DataDir(self.data_dir)

    @property
    def weights(self) -> LocalWeights:
        hub = Hub(self.hub.url, self.token, self.shared_cache)
        return LocalWeights(Settings(self.data_dir, hub=hub), lambda: self.registered)

    def attempt(self, model: str, revision: str | None = None) -> Attempt:
        return Attempt(self.data.download(model, revision))

    def child(self, model: str) -> Child:
        """The process that fetches `model`, once it stands there."""
        until(lambda: self.attempt(model).child() is not None, f"a child for {model}")
        child = self.attempt(model).child()
        assert child is not None
        return child

    def fetch(self, model: str, revision: str | None = None) -> None:
        self.weights.fetch(WeightsOrder(model, revision))

    def fetched(self, model: str, revision: str | None = None) -> WeightsSeen:
        """Fetch, and how that ended."""
        self.fetch(model, revision)
        return self.ended(model, revision)

    def ended(self, model: str, revision: str | None = None) -> WeightsSeen:
        attempt = self.attempt(model, revision)
        until(lambda: not attempt.is_worked_on(), f"the end of {model}")
        return self.weights.observe(model, revision)

    def files(self, seen: WeightsSeen) -> dict[str, bytes]:
        assert seen.state is WeightsState.READY
        assert seen.path is not None
        root = Path(seen.path)
        return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
