"""Stops every local engine and download of the data directory, so that GPUs and network are
free: `python -m worker.drivers.local.stop_all`. What is stopped so is not counted as failed."""

from __future__ import annotations

import sys
import time

from controlplane.domain.deployment import DeploymentId
from controlplane.errors import AppError
from controlplane.paths import DataDir
from controlplane.settings import Settings, load_settings
from worker.drivers.base import Unreachable
from worker.drivers.local.ending import end
from worker.drivers.local.locks import unfenced
from worker.drivers.local.records import ReplicaFolder, owned_deployments, replica_folders
from worker.drivers.local.weights import LocalWeights

POLL_SECONDS = 0.05
KILL_SECONDS = 10.0  # after SIGKILL; only a process that hangs in the kernel takes longer


def stop_all(settings: Settings) -> tuple[int, int]:
    """SIGTERM to all at once, SIGKILL after the grace to those that are left. How many engines
    there were, and how many are left. A worker should be stopped before: what it starts
    meanwhile may be missed."""
    data = DataDir(settings.data_dir)
    found = len(_signal(data, kill=False))
    _wait(data, settings.engines.stop_grace)
    deadline = time.monotonic() + KILL_SECONDS
    while left := _signal(data, kill=True):
        if time.monotonic() > deadline:
            return found, len(left)
        time.sleep(POLL_SECONDS)
    return found, 0


def _signal(data: DataDir, *, kill: bool) -> list[ReplicaFolder]:
    """Those that still live. Those that don't, and were told to end, are cleared."""
    alive = []
    for deployment_id, folders in _by_deployment(data).items():
        try:
            with unfenced(data.deployment(deployment_id)):
                alive += [f for f in folders if _end_one(f, kill=kill)]
        except Unreachable:
            # Somebody works on it for seconds and more: it hangs, and its engine must go.
            alive += [f for f in folders if _end_one(f, kill=kill)]
    return alive


def _end_one(folder: ReplicaFolder, *, kill: bool) -> bool:
    life = folder.life()
    if life is None:
        return False
    alive = bool(life.members())
    if alive or folder.stopped(life):
        end(folder, life, kill=kill)
    return alive


def _wait(data: DataDir, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and _any_alive(data):
        time.sleep(POLL_SECONDS)


def _any_alive(data: DataDir) -> bool:
    return any(
        life.members()
        for folders in _by_deployment(data).values()
        for folder in folders
        if (life := folder.life()) is not None
    )


def _by_deployment(data: DataDir) -> dict[DeploymentId, list[ReplicaFolder]]:
    found = {i: list(replica_folders(data, i)) for i in owned_deployments(data)}
    return {i: folders for i, folders in found.items() if folders}


def main() -> int:
    try:
        settings = load_settings()
        LocalWeights(settings, dict).stop_all()
        found, left = stop_all(settings)
    except AppError as e:
        print(f"{e.message} {e.hint}".strip(), file=sys.stderr)
        return 1
    if left:
        print(f"{left} of {found} engines did not end.", file=sys.stderr)
        return 1
    if found:
        print(f"Stopped {found} engine{'s' if found > 1 else ''}.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
