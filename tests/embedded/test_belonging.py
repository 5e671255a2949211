"""A database outside the data directory is taken up by the data directory it belongs to only."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from controlplane.embedded import belonging
from controlplane.errors import Refused


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "run").mkdir(parents=True)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "system" / "0123456789ab"
    (folder / "postgres").mkdir(parents=True)
    return folder


def test_the_two_that_were_made_together_go_together(data_dir: Path, home: Path) -> None:
    for _ in range(2):
        belonging.check(data_dir, home)
        belonging.claim(data_dir, home)
    shutil.rmtree(data_dir / "run")
    belonging.check(data_dir, home)


def test_a_new_data_directory_does_not_take_up_an_earlier_one_s_database(
    data_dir: Path, home: Path
) -> None:
    belonging.claim(data_dir, home)
    backup = data_dir.with_name("backup")
    data_dir.rename(backup)
    with pytest.raises(Refused) as caught:
        belonging.check(data_dir, home)
    assert str(home) in caught.value.message
    assert f"rm -r {home}" in caught.value.hint
    assert not data_dir.exists()

    (data_dir / "run").mkdir(parents=True)  # as an `up` that was refused may leave it
    with pytest.raises(Refused):
        belonging.check(data_dir, home)

    shutil.rmtree(data_dir)
    backup.rename(data_dir)  # one way out: the earlier one is back
    belonging.check(data_dir, home)


def test_a_removed_database_begins_anew_beside_the_data_directory(
    data_dir: Path, home: Path
) -> None:
    belonging.claim(data_dir, home)
    shutil.rmtree(home)
    belonging.check(data_dir, home)
    (home / "postgres").mkdir(parents=True)
    belonging.claim(data_dir, home)
    belonging.check(data_dir, home)


@pytest.mark.parametrize("lost", [("home",), ("data", "home")])
def test_a_crash_before_both_were_marked_bars_nothing(
    data_dir: Path, home: Path, lost: tuple[str, ...]
) -> None:
    belonging.claim(data_dir, home)
    for name in lost:
        ({"home": home, "data": data_dir}[name] / "database-id").unlink()
    belonging.check(data_dir, home)


def test_an_unmarked_database_is_no_new_data_directory_s_own(data_dir: Path, home: Path) -> None:
    shutil.rmtree(data_dir)
    with pytest.raises(Refused):
        belonging.check(data_dir, home)


def test_a_database_in_the_data_directory_itself_needs_no_mark(data_dir: Path) -> None:
    (data_dir / "postgres").mkdir()
    belonging.check(data_dir, data_dir)
    belonging.claim(data_dir, data_dir)
    assert sorted(p.name for p in data_dir.iterdir()) == ["postgres", "run"]
