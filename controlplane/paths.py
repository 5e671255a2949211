"""Where things lie below the data directory, in one place for every process that looks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from controlplane.domain.deployment import DeploymentId
from controlplane.domain.naming import replica_name, weights_key


@dataclass(frozen=True, slots=True)
class DataDir:
    """The one-machine system's folder. Nothing here creates anything."""

    root: Path

    @property
    def run(self) -> Path:
        """The supervisor's own state: pid, lock, addresses, the log of each process."""
        return self.root / "run"

    @property
    def admin_key(self) -> Path:
        """The CLI's key on this machine; only its user can read it (0600)."""
        return self.root / "admin-key"

    @property
    def engines(self) -> Path:
        """One folder for each installed engine environment: `cpu-0.32.0`."""
        return self.root / "engines"

    @property
    def engine_home(self) -> Path:
        """HOME of every engine: its caches, apart from the user's, where a hub token lies."""
        return self.root / "engine-home"

    @property
    def demo_models(self) -> Path:
        return self.root / "models" / "demo"

    @property
    def hub_cache(self) -> Path:
        """Weights from the hub, in the hub client's own cache layout."""
        return self.root / "models" / "hub"

    @property
    def downloads(self) -> Path:
        """One folder for each download: lock, progress, outcome, log."""
        return self.root / "downloads"

    @property
    def replicas(self) -> Path:
        return self.root / "replicas"

    def download(self, model: str, revision: str | None) -> Path:
        return self.downloads / weights_key(model, revision)

    def deployment(self, deployment_id: DeploymentId) -> Path:
        """All files of one deployment: fence, engine key, a folder for each replica."""
        return self.replicas / deployment_id

    def replica(self, deployment_id: DeploymentId, slot: int, render_hash: str) -> Path:
        """One replica's state, lock and logs (`engine.log`, `engine.log.1`)."""
        return self.deployment(deployment_id) / replica_name(deployment_id, slot, render_hash)
