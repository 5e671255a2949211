"""A child that is kept alive."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from controlplane.embedded.children import spawn
from controlplane.embedded.kept import Kept


def kept(tmp_path: Path, *argv: str) -> Kept:
    log = tmp_path / "part.log"
    return Kept("part", log, lambda: spawn(argv, log=log), signal.SIGTERM, grace=5.0)


def words_of(part: Kept, count: int) -> list[str]:
    said: list[str] = []
    deadline = time.monotonic() + 60
    while len(said) < count:
        assert time.monotonic() < deadline
        if told := part.look():
            said.append(told)
    return said


@pytest.mark.parametrize(
    ("script", "how"), [("exit 3", "exit 3"), ("exit 0", "exit 0"), ("kill -9 $$", "SIGKILL")]
)
def test_a_part_that_ends_unasked_starts_again_later_each_time(
    tmp_path: Path, script: str, how: str
) -> None:
    part = kept(tmp_path, "sh", "-c", script)
    part.start()
    assert words_of(part, 2) == [
        f"part ended ({how}); it starts again in 0.5 s",
        f"part ended ({how}); it starts again in 1 s",
    ]
    assert part.failures == 2


def test_a_part_that_ignores_its_end_is_killed_with_all_of_its_group(tmp_path: Path) -> None:
    part = kept(tmp_path, "sh", "-c", "trap '' TERM; sleep 600 & echo up; wait; sleep 600")
    part.start()
    deadline = time.monotonic() + 30
    while "up" not in part.log.read_text():
        assert time.monotonic() < deadline
    part.tell()
    assert part.life is not None
    part.kill()
    assert not part.alive
