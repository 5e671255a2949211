"""A long job: one worker at a time, watched by others, told apart from a dead one."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from controlplane.errors import Refused
from controlplane.long_jobs import Job, JobSeen, Progress

HALF = Progress(0.5, "download", "Downloading")


def test_nothing_is_seen_of_a_job_that_nobody_ever_began(tmp_path: Path) -> None:
    assert Job(tmp_path / "job").seen() is None


def test_others_see_how_far_a_job_is_and_that_it_ended(tmp_path: Path) -> None:
    job = Job(tmp_path / "job")
    with job.work() as report:
        report(HALF)
        assert Job(tmp_path / "job").seen() == JobSeen(HALF, running=True)
    assert job.seen() == JobSeen(HALF, running=False)


def test_a_failure_is_kept_with_its_hint_until_the_next_try(tmp_path: Path) -> None:
    job = Job(tmp_path / "job")
    with pytest.raises(Refused):
        _fail(job)
    assert job.seen() == JobSeen(HALF, False, "The disk is full.", "Free some space.")
    with job.work() as report:
        report(HALF)
        assert job.seen() == JobSeen(HALF, running=True)


def test_a_worker_that_died_is_not_taken_for_one_that_works(tmp_path: Path) -> None:
    died = subprocess.Popen([sys.executable, "-c", ""])
    started = psutil.Process(died.pid).create_time()
    died.wait()
    _record(tmp_path, died.pid, started)
    seen = Job(tmp_path / "job").seen()
    assert seen is not None
    assert not seen.running


def test_another_process_under_the_workers_old_number_is_not_the_worker(tmp_path: Path) -> None:
    _record(tmp_path, os.getpid(), psutil.Process().create_time() - 3600)
    seen = Job(tmp_path / "job").seen()
    assert seen is not None
    assert not seen.running


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"fraction": "much"}', "nonsense"])
def test_a_broken_progress_file_tells_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.json").write_text(text)
    assert Job(tmp_path / "job").seen() is None


def test_a_second_worker_waits_and_sees_the_first_ones_progress(tmp_path: Path) -> None:
    job, seen, order = Job(tmp_path / "job"), [], []
    waits = threading.Event()

    def second() -> None:
        def watch(progress: Progress) -> None:
            seen.append(progress)
            waits.set()

        with Job(tmp_path / "job").work(watch):
            order.append("second")

    with job.work() as report:
        report(HALF)
        other = threading.Thread(target=second)
        other.start()
        assert waits.wait(20)
        order.append("first")
    other.join(20)
    assert order == ["first", "second"]
    assert HALF in seen


def _fail(job: Job) -> None:
    with job.work() as report:
        report(HALF)
        raise Refused("disk_full", "The disk is full.", hint="Free some space.")


def _record(folder: Path, pid: int, started: float) -> None:
    record = {"fraction": 0.5, "step": "x", "message": "y", "pid": pid, "started": started}
    (folder / "job.json").write_text(json.dumps(record))
