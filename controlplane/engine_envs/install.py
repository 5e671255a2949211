"""Install an engine: into a folder beside its place, which it takes when it is complete."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from controlplane import uv
from controlplane.domain.engines import Engine, engine_for
from controlplane.domain.tiers import GIB, DeviceKind
from controlplane.engine_envs.check import check
from controlplane.engine_envs.environments import (
    MARKER,
    EngineEnv,
    engine_name,
    install_job,
    read,
)
from controlplane.engine_envs.plugin_files import mend_vllm_metadata, put_plugin
from controlplane.engine_envs.recipes import Attempt, attempts
from controlplane.engine_envs.uv_progress import UvProgress
from controlplane.errors import Refused
from controlplane.long_jobs import OnProgress, Progress, ignore
from controlplane.machine import disk_free
from controlplane.paths import DataDir
from controlplane.settings import Settings

# What the next way to get PyTorch may mend; a full disk or a strange Python it can't.
_ANOTHER_WAY_MAY_HELP = frozenset({"index_unreachable", "not_found_in_index", "no_wheel"})


def install(
    settings: Settings,
    kind: DeviceKind,
    version: str | None = None,
    on_progress: OnProgress = ignore,
) -> EngineEnv:
    """The engine for `kind`, installed if it isn't yet; the plugin is brought up to date.

    Safe to call from several processes: one installs, the others wait for it. An install that
    broke off begins anew with what was downloaded. Raises Invalid for a version that we don't
    support, and AppError with a sentence and a hint when it can't be done; nothing is left
    then but the package cache.
    """
    engine = engine_for(kind, version)
    data = DataDir(settings.data_dir)
    place = data.engines / engine_name(kind, engine.version)
    there = read(place)
    if there:
        put_plugin(place)
        return there
    with install_job(data, kind, engine.version).work(on_progress) as report:
        there = read(place)
        if there:
            return there
        try:
            return _install(engine, kind, place, report)
        except OSError as e:
            raise _explain_os_error(e) from e


def _install(engine: Engine, kind: DeviceKind, place: Path, report: OnProgress) -> EngineEnv:
    temp = place.with_name(f".new-{place.name}")
    report(Progress(0.0, "prepare", "Preparing a place for the engine"))
    for leftover in (temp, place):  # `place` without its marker is no environment
        shutil.rmtree(leftover, ignore_errors=True)
    sources = uv.package_sources()
    try:
        _fetch(attempts(engine, kind, sources), temp, sources, report)
        if kind is DeviceKind.CPU:
            mend_vllm_metadata(temp, engine.version)
        put_plugin(temp)
        report(Progress(0.92, "check", "Trying the engine"))
        versions = check(kind, temp)
        (temp / MARKER).write_text(
            json.dumps({"kind": kind, "version": engine.version, "packages": versions}),
            encoding="utf-8",
        )
        temp.rename(place)
    finally:
        shutil.rmtree(temp, ignore_errors=True)
    report(Progress(1.0, "done", f"vLLM {engine.version} is installed"))
    installed = read(place)
    assert installed is not None
    return installed


def _fetch(
    ways: tuple[Attempt, ...], temp: Path, sources: uv.PackageSources, report: OnProgress
) -> None:
    for n, way in enumerate(ways):
        _require_room(temp, way)
        report(Progress(0.02, "resolve", way.says))
        try:
            _fetch_one(way, temp, sources, report)
        except uv.InstallFailed as e:
            if n + 1 == len(ways) or e.code not in _ANOTHER_WAY_MAY_HELP:
                raise
        else:
            return


def _fetch_one(way: Attempt, temp: Path, sources: uv.PackageSources, report: OnProgress) -> None:
    shutil.rmtree(temp, ignore_errors=True)
    # Relocatable, as it is renamed when complete; from the base interpreter, so that it lives
    # on when the control plane's own environment is made anew.
    base = getattr(sys, "_base_executable", None) or sys.executable
    uv.run(["venv", "--relocatable", "--python", base, str(temp)])
    overrides = temp / "overrides.txt"
    overrides.write_text(way.overrides, encoding="utf-8")
    lines = UvProgress()

    def on_line(line: str) -> None:
        progress = lines.take(line)
        if progress:
            report(progress)

    uv.run(
        [
            "pip",
            "install",
            "--python",
            str(uv.python_of(temp)),
            "--compile-bytecode",
            "--overrides",
            str(overrides),
            *way.args,
        ],
        sources=sources,
        on_line=on_line,
    )


def _require_room(temp: Path, way: Attempt) -> None:
    free = disk_free(temp)
    if free < way.bytes_needed:
        raise Refused(
            "disk_full",
            f"The engine needs {way.bytes_needed / GIB:.0f} GiB of disk to be installed, and "
            f"{free / GIB:.1f} GiB are free.",
            hint="Free some space, or put the data directory elsewhere (SLIPSTREAM_DATA_DIR).",
        )


def _explain_os_error(e: OSError) -> Refused:
    told = uv.explain([str(e)])
    return Refused(told.code, told.message, hint=told.hint)
