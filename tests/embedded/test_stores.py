"""The embedded PostgreSQL and Valkey: whose they are, where they lie, how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from controlplane.embedded import postgres, valkey
from controlplane.embedded.postgres import PostgresPlace

pytestmark = pytest.mark.system


@pytest.fixture
def base() -> Iterator[Path]:
    """A short folder that others can pass through, with a closed one beside it."""
    with tempfile.TemporaryDirectory(prefix="slipstream-tests-") as text:
        folder = Path(text)
        folder.chmod(0o711)
        yield folder


def modes(path: Path) -> dict[str, tuple[int, int, int]]:
    """Permissions and owners of a folder and everything above it."""
    seen = {p: p.stat() for p in (path, *path.parents)}
    return {str(p): (s.st_mode, s.st_uid, s.st_gid) for p, s in seen.items()}


def ask(place: PostgresPlace, query: str) -> object:
    with psycopg.connect(
        host=str(place.sockets), user=postgres.NAME, dbname=postgres.NAME, autocommit=True
    ) as connection:
        cursor = connection.execute(query.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def test_starting_the_database_changes_no_permission_of_what_stands_already(base: Path) -> None:
    data_dir = base / "home" / "data"
    data_dir.mkdir(parents=True)
    data_dir.parent.chmod(0o700)
    wheel = Path(postgres.__file__).parents[2]
    environment = Path(sys.prefix)
    before = [modes(p) for p in (data_dir, wheel, environment)]
    place = postgres.place_of(data_dir, base / "system")
    process = postgres.start(place, durable=False)
    try:
        assert [modes(p) for p in (data_dir, wheel, environment)] == before
        assert place.data.stat().st_mode & 0o777 == 0o700
        assert place.sockets.stat().st_mode & 0o777 == 0o700
        if os.geteuid() == 0:
            assert psutil.Process(process.pid).uids().real == place.data.stat().st_uid != 0
            assert data_dir not in place.data.parents
    finally:
        postgres.end(process)


def test_the_database_listens_on_its_socket_only(postgres_server: PostgresPlace) -> None:
    assert ask(postgres_server, "SHOW listen_addresses") == ""
    assert ask(postgres_server, "SHOW fsync") == "off", "the tests' own server forgets"


@pytest.mark.parametrize(
    "name",
    ["with a space", "größe-数据", "a" * 90, "comma,and'quote\"and?#%"],
    ids=["space", "unicode", "long", "signs"],
)
def test_a_data_directory_of_any_name_works(base: Path, name: str) -> None:
    data_dir = base / name / "data"
    place = postgres.place_of(data_dir, base / "system")
    broker = valkey.place_of(data_dir)
    servers = [postgres.start(place, durable=False), valkey.start(broker)]
    try:
        with psycopg.connect(place.url().replace("+psycopg", "")) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert postgres.url_of(data_dir, base / "system") == place.url()
        assert valkey.answers(broker)
    finally:
        for server in servers:
            postgres.end(server)
        for sockets in (place.sockets, broker.sockets):
            if base not in sockets.parents:
                sockets.rmdir()


def test_what_was_stored_is_there_after_a_killed_server_and_a_reused_process_number(
    base: Path,
) -> None:
    place = postgres.place_of(base / "data", base / "system")
    first = postgres.start(place)
    ask(place, "CREATE TABLE kept AS SELECT 7 AS n")
    assert ask(place, "SHOW fsync") == "on"
    first.send_signal(signal.SIGKILL)
    first.wait(10)
    pid_file = place.data / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    # Another program of the same user has the number of the dead server now.
    with subprocess.Popen(
        ["sleep", "600"],
        user=place.account.uid if place.account else None,
    ) as stranger:
        try:
            pid_file.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
            second = postgres.start(place)
            try:
                assert ask(place, "SELECT n FROM kept") == 7
                assert stranger.poll() is None
            finally:
                postgres.end(second)
        finally:
            stranger.kill()


def test_the_stores_end_when_the_process_that_started_them_is_killed(base: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from controlplane.embedded import postgres, valkey\n"
        "base = pathlib.Path(sys.argv[1])\n"
        "p = postgres.start(postgres.place_of(base/'data', base/'system'), durable=False)\n"
        "v = valkey.start(valkey.place_of(base/'data'))\n"
        "print(p.pid, v.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        servers = [psutil.Process(int(p)) for p in parent.stdout.readline().split()]
        assert all(s.is_running() for s in servers)
        parent.kill()
    psutil.wait_procs(servers, timeout=30)
    assert not any(s.is_running() and s.status() != psutil.STATUS_ZOMBIE for s in servers)


def test_a_new_server_waits_for_one_that_still_ends(base: Path) -> None:
    place = postgres.place_of(base / "data", base / "system")
    first = postgres.start(place, durable=False)
    second = postgres.start(place, durable=False)  # tells the first to end, and waits for it
    try:
        assert first.wait(10) == 0
        assert ask(place, "SELECT 1") == 1
    finally:
        postgres.end(second)


def test_a_setup_that_was_cut_short_is_done_again(base: Path) -> None:
    place = postgres.place_of(base / "data", base / "system")
    (place.home / "postgres.new").mkdir(parents=True)
    (place.home / "postgres.new" / "PG_VERSION").write_text("18\n")
    process = postgres.start(place, durable=False)
    postgres.end(process)
    assert process.returncode == 0


def test_a_database_of_another_version_is_refused_untouched(base: Path) -> None:
    place = postgres.place_of(base / "data", base / "system")
    place.data.mkdir(parents=True)
    (place.data / "PG_VERSION").write_text("16\n")
    with pytest.raises(postgres.Refused) as caught:
        postgres.start(place)
    assert caught.value.code == "database_of_another_version"
    assert [p.name for p in place.data.iterdir()] == ["PG_VERSION"]


def test_a_folder_for_sockets_that_a_stranger_can_enter_is_refused(base: Path) -> None:
    place = valkey.place_of(base / "data")
    place.folder.mkdir(parents=True)
    place.folder.chmod(0o777)
    with pytest.raises(postgres.Refused) as caught:
        valkey.start(place)
    assert caught.value.code == "unsafe_folder"
