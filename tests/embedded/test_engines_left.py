"""Engines that outlive their supervisor are found by the driver's own records."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.cli import doctor
from controlplane.embedded.commands import down
from controlplane.embedded.leftovers import Engine, engines_of, life_of
from controlplane.embedded.state import RunFolder, Running
from controlplane.paths import DataDir
from controlplane.settings import Settings
from worker.drivers.local.processes import boot_id


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def _record(data_dir: Path, pid: int, **changes: object) -> Path:
    life = life_of(pid)
    assert life is not None
    folder = DataDir(data_dir).replicas / "dep" / "r-0-hash"
    folder.mkdir(parents=True, exist_ok=True)
    told = {"pid": pid, "started": life.started, "boot": boot_id(), **changes}
    (folder / "process.json").write_text(json.dumps(told))
    (folder / "order.json").write_text(json.dumps({"name": "hello"}))
    return folder


def test_an_engine_that_lives_is_found_and_no_other(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    assert engines_of(tmp_path) == ()
    folder = _record(tmp_path, sleeper.pid)
    assert engines_of(tmp_path) == (Engine("hello", sleeper.pid),)
    _record(tmp_path, sleeper.pid, boot="another")
    assert engines_of(tmp_path) == ()
    _record(tmp_path, sleeper.pid, started=1)
    assert engines_of(tmp_path) == ()
    for garbage in ("", "[]", '{"pid": null}'):
        (folder / "process.json").write_text(garbage)
        assert engines_of(tmp_path) == ()
    _record(tmp_path, sleeper.pid)
    sleeper.kill()
    sleeper.wait(10)
    assert engines_of(tmp_path) == ()


def test_doctor_and_down_tell_a_crash_from_engines_that_were_kept(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    settings, folder = Settings(tmp_path), RunFolder(tmp_path)
    _record(tmp_path, sleeper.pid)
    kept = next(f for f in doctor.examine(settings) if f.part == "engines")
    assert kept.ok
    assert f"hello (process {sleeper.pid})" in kept.seen
    down(settings, keep_engines=True)
    assert "1 engine that had been kept may go on." in capsys.readouterr().out

    folder.make()
    folder.write(Running(1, "127.0.0.1", 8400, 40_000))  # nobody took it away
    left = next(f for f in doctor.examine(settings) if f.part == "engines")
    assert not left.ok
    assert "left by a crash" in left.seen
    down(settings, keep_engines=True)
    assert "1 engine that a crash had left may go on." in capsys.readouterr().out
    assert sleeper.poll() is None
