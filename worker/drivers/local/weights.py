"""Weights on this machine: what is here, and a child process that fetches what is not.

Observing reads files and never asks a hub, so a hub that is down is in nobody's way once the
weights are here. `stop_all` belongs to the system's going down: a worker that ends, or dies,
leaves its downloads running, and the next one finds them by their locks.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import psutil

import controlplane
from controlplane.domain.model_refs import ModelSource, parse_model_ref
from controlplane.domain.reasons import Reason
from controlplane.hub.attempts import Attempt, Child
from controlplane.hub.cache import Snapshot, checked, find_snapshot
from controlplane.hub.failures import DownloadFailed, ModelNotFound
from controlplane.hub.folder import fault_of, is_heterogeneous
from controlplane.long_jobs import Job
from controlplane.paths import DataDir
from controlplane.settings import Settings
from controlplane.telemetry import logger
from worker.download_order import BUSY, DONE, ENDED, FAILED, Order
from worker.drivers.base import EffectRefused, WeightsOrder, WeightsSeen, WeightsState

STOP_SECONDS = 5.0  # SIGTERM to SIGKILL; a downloader ends at once when it is asked
SETUP_SECONDS = 30.0  # demo models that nobody makes for so long are made by nobody
INTRODUCTION_SECONDS = 2.0  # from holding the lock to standing in child.json
LARGEST_LOG = 1_000_000  # bytes; then the log starts anew
# What a downloader gets of our environment: ways out to the network, and the hub client's
# own switches. No secret but its token, and no access to the databases.
_PASSED = (
    *("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("HF_HUB_OFFLINE", "HF_HUB_DISABLE_XET", "HF_XET_HIGH_PERFORMANCE"),
)
_log = logger(__name__)


class LocalWeights:
    """`registered` tells the folders of `local/NAME`, by name; `clock` counts seconds."""

    def __init__(
        self,
        settings: Settings,
        registered: Callable[[], Mapping[str, str]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._data = DataDir(settings.data_dir)
        self._registered = registered
        self._clock = clock
        self._nobody_since: float | None = None  # when demo models were first made by nobody

    def observe(self, model: str, revision: str | None) -> WeightsSeen:
        """Where a model's weights are, or how far. Reads files only."""
        try:
            name, _ = checked(model, revision)
        except ModelNotFound as e:
            return _failed(Reason.MODEL_NOT_FOUND, e.message)
        ref = parse_model_ref(name)
        if ref.source is ModelSource.DEMO:
            return self._demo(ref.name)
        if ref.source is ModelSource.LOCAL:
            return self._local(ref.name)
        return self._hub(name, revision)

    def fetch(self, order: WeightsOrder) -> None:
        """Start a downloader for weights of the hub, unless one works on them or they are
        here. Also after a failure: when to try again is the caller's business. Raises
        EffectRefused when this machine can't even begin one."""
        try:
            model, _ = checked(order.model, order.revision)
        except ModelNotFound:
            return  # `observe` says so, and there is nothing to fetch
        if parse_model_ref(model).source is not ModelSource.HUB or self._found(
            model, order.revision
        ):
            return
        attempt = Attempt(self._data.download(model, order.revision))
        try:
            lock = attempt.try_lock()
            if lock is None:
                return
            with lock:
                attempt.begin()
                self._start(model, order.revision, attempt, lock)
        except OSError as e:
            full = e.errno in (errno.ENOSPC, errno.EDQUOT)
            raise EffectRefused(
                Reason.DISK_FULL if full else Reason.DOWNLOAD_FAILED,
                f"A download of {model} can't be begun: {os.strerror(e.errno or 0)}.",
            ) from e

    def stop_all(self) -> None:
        """As `stop_downloads`, of this data directory."""
        stop_downloads(self._data)

    def _demo(self, name: str) -> WeightsSeen:
        folder = self._data.demo_models / name
        if (folder / ".complete").is_file():
            return _ready(folder, None)
        making = _making(self._data, name)
        now = self._clock()
        if making is not None:
            self._nobody_since = None
            return making
        # The setup goes from one job to the next, and begins a moment after we do.
        if self._nobody_since is None:
            self._nobody_since = now
        if now - self._nobody_since < SETUP_SECONDS:
            return WeightsSeen(WeightsState.FETCHING)
        return _failed(
            Reason.MODEL_NOT_FOUND,
            f"demo/{name} is not on this machine; slipstream demo-models makes the demo pair.",
        )

    def _local(self, name: str) -> WeightsSeen:
        path = self._registered().get(name)
        if path is None:
            return _failed(
                Reason.MODEL_NOT_FOUND,
                f"No model is registered as local/{name}; slipstream models add registers one.",
            )
        fault = fault_of(Path(path))
        if fault is not None:
            return _failed(Reason.BAD_WEIGHTS, f"local/{name}: {fault}")
        return _ready(Path(path), None)

    def _hub(self, model: str, revision: str | None) -> WeightsSeen:
        found = self._found(model, revision)
        if found is not None:
            return _ready(found.path, found.commit)
        attempt = Attempt(self._data.download(model, revision))
        if attempt.is_worked_on():
            fraction, eta = attempt.progress()
            return WeightsSeen(WeightsState.FETCHING, fraction=fraction, eta_seconds=eta)
        failed = attempt.failed()
        if failed is None:
            return WeightsSeen(WeightsState.ABSENT)
        seen = _failed(failed.reason, failed.detail)
        return replace(seen, attempt_at=failed.at, retry_at=failed.retry_at)

    def _found(self, model: str, revision: str | None) -> Snapshot | None:
        """In our cache, else in one that is here already, which is only read."""
        shared = self._settings.hub.shared_cache
        caches = [self._data.hub_cache, *([shared] if shared else [])]
        return next((s for c in caches if (s := find_snapshot(c, model, revision))), None)

    def _start(self, model: str, revision: str | None, attempt: Attempt, lock: BinaryIO) -> None:
        order = Order(
            model,
            revision,
            self._settings.hub.endpoint,
            self._data.hub_cache,
            attempt.folder,
            lock.fileno(),
        )
        grown = attempt.log.is_file() and attempt.log.stat().st_size > LARGEST_LOG
        with attempt.log.open("wb" if grown else "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "worker.downloader"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=self._environment(),
                cwd=Path(controlplane.__file__).parent.parent,
                pass_fds=(lock.fileno(),),
                start_new_session=True,
            )
        with suppress(psutil.Error):
            attempt.introduce(Child(process.pid, psutil.Process(process.pid).create_time()))
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(order.to_json().encode())
        threading.Thread(target=_see_out, args=(process, attempt), daemon=True).start()

    def _environment(self) -> dict[str, str]:
        hub = self._settings.hub
        own = {
            "HF_ENDPOINT": hub.endpoint,
            "HF_HOME": str(self._data.downloads / ".client"),
            "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "PYTHONUNBUFFERED": "1",
        }
        if hub.token is not None:
            own["HF_TOKEN"] = hub.token
        return {name: os.environ[name] for name in _PASSED if name in os.environ} | own


def stop_downloads(data: DataDir) -> None:
    """End every download of a data directory, and return when they have ended. What they
    fetched stays, and a later fetch goes on from there."""
    running = [p for f in _folders(data.downloads) if (p := _running(Attempt(f)))]
    for process in running:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(running, timeout=STOP_SECONDS)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=STOP_SECONDS)


def _making(data: DataDir, name: str) -> WeightsSeen | None:
    """A demo model in the making, or waiting for the engine that is set up before it."""
    for job in (Job(data.demo_models / name), Job(data.demo_models)):
        seen = job.seen()
        if seen is not None and seen.running:
            return WeightsSeen(WeightsState.FETCHING, fraction=seen.progress.fraction)
    engines = (Job(f.with_suffix("")).seen() for f in data.engines.glob("*.json"))
    if any(seen is not None and seen.running for seen in engines):
        return WeightsSeen(WeightsState.FETCHING)
    return None


def _see_out(process: subprocess.Popen[bytes], attempt: Attempt) -> None:
    """Wait for a downloader, and speak for one that could not speak for itself. Ended by a
    signal, it was interrupted: that is no failure."""
    status = process.wait()
    if status < 0 or status in (DONE, FAILED, BUSY, ENDED):
        return
    _log.error("downloader_broke", status=status)
    lock = attempt.try_lock()
    if lock is None:
        return
    with lock, suppress(OSError):
        failure = DownloadFailed(f"The downloader could not work (exit status {status}).")
        attempt.fail(failure, datetime.now(UTC))


def _running(attempt: Attempt) -> psutil.Process | None:
    """The downloader that fills a folder. One that was started this instant may not stand
    there yet, so we look again for a while."""
    until = time.monotonic() + INTRODUCTION_SECONDS
    while attempt.is_worked_on():
        process = _process(attempt.child())
        if process is not None or time.monotonic() > until:
            return process
        time.sleep(0.05)
    return None


def _process(child: Child | None) -> psutil.Process | None:
    """The process that a folder names, if it is still that one."""
    if child is None:
        return None
    try:
        process = psutil.Process(child.pid)
        return process if process.create_time() == child.started else None
    except psutil.Error:
        return None


def _folders(parent: Path) -> list[Path]:
    try:
        return [p for p in parent.iterdir() if p.is_dir()]
    except OSError:
        return []


def _ready(folder: Path, commit: str | None) -> WeightsSeen:
    return WeightsSeen(
        WeightsState.READY,
        path=str(folder),
        revision=commit,
        heterogeneous=is_heterogeneous(folder),
    )


def _failed(reason: Reason, detail: str) -> WeightsSeen:
    return WeightsSeen(WeightsState.FAILED, reason=reason, detail=detail)
