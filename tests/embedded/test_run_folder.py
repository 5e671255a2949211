"""The run folder: one `up` at a time, logs kept small, and who is still there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.embedded.leftovers import Life, end_lives, life_of
from controlplane.embedded.logs import Follower, last_lines, rotate
from controlplane.embedded.state import RunFolder, Running
from controlplane.errors import Conflict


def test_only_one_process_holds_a_data_directory(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.make()
    assert folder.holder() is None
    with folder.held():
        assert folder.holder() == os.getpid()
        with pytest.raises(Conflict), RunFolder(tmp_path).held():
            pass
    assert folder.holder() is None


def test_a_killed_holder_holds_nothing_any_more(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from controlplane.embedded.state import RunFolder\n"
        "folder = RunFolder(pathlib.Path(sys.argv[1])); folder.make()\n"
        "with folder.held(): print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        assert RunFolder(tmp_path).holder() == child.pid
        child.kill()
    assert RunFolder(tmp_path).holder() is None


def test_what_an_up_wrote_is_read_back_and_garbage_is_nothing(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.make()
    running = Running(1, "127.0.0.1", 8400, 40_000, True, {"api": Life(2, 3)})
    folder.write(running)
    assert folder.read() == running
    for garbage in ("", "[]", '{"pid": 1}', '{"children": {"api": 3}}'):
        (folder.path / "up.json").write_text(garbage)
        assert folder.read() is None


def test_a_process_number_that_somebody_else_got_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "600"]) as stranger:
        life = life_of(stranger.pid)
        assert life is not None
        end_lives([Life(life.pid, life.started - 1)], grace=0.1)
        assert stranger.poll() is None
        end_lives([life], grace=0.1)
        assert stranger.wait(10) != 0


def test_a_large_log_is_kept_once_and_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    with log.open("a") as writer:
        writer.write("a" * 2000 + "\n")
        writer.flush()
        rotate(log, 1000)
        writer.write("new\n")
    assert log.read_text() == "new\n"
    assert (tmp_path / "api.log.1").stat().st_size == 2001
    rotate(log, 1000)
    assert log.read_text() == "new\n"
    rotate(tmp_path / "none.log", 1000)


def test_the_end_of_a_log_can_t_move_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    log.write_bytes(b"one\n\x1b[2Jtwo\x07\n\n\xffthree\n")
    assert last_lines(log, 2) == [" [2Jtwo", "\ufffdthree"]
    assert last_lines(tmp_path / "none.log", 2) == []


def test_a_growing_file_is_followed_line_by_line(tmp_path: Path) -> None:
    log = tmp_path / "setup.log"
    log.write_text("old\n")
    follower = Follower(log)
    with log.open("a") as writer:
        writer.write("half")
        writer.flush()
        assert follower.lines() == []
        writer.write(" and whole\nnext\n")
    assert follower.lines() == ["half and whole", "next"]
    assert follower.lines() == []
