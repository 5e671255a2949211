"""What each process of the one-machine system is told."""

from __future__ import annotations

from pathlib import Path

from controlplane.embedded.console import tunnel
from controlplane.embedded.parts import environment, parts, with_stores
from controlplane.settings import Server, Settings, Stores, load_settings

SECRET = {"HF_TOKEN": "hf_secret", "SLIPSTREAM_ADMIN_KEY": "sl_secret", "PATH": "/bin"}


def test_a_secret_reaches_only_those_who_use_it(tmp_path: Path) -> None:
    told = {
        name: environment(Settings(tmp_path), name, SECRET)
        for name in ("gateway", "api", "worker", "bootstrap", "setup", "engines")
    }
    assert {n for n, env in told.items() if "HF_TOKEN" in env} == {"api", "worker", "setup"}
    assert {n for n, env in told.items() if "SLIPSTREAM_ADMIN_KEY" in env} == {"api", "bootstrap"}
    assert all(env["PATH"] == "/bin" for env in told.values())


def test_children_read_back_the_settings_that_the_supervisor_has(tmp_path: Path) -> None:
    mine = Settings(tmp_path, server=Server("127.0.0.1", 9000, 9001))
    mine = with_stores(mine)
    child = load_settings(environment(mine, "api", {"HOME": "/nowhere"}))
    assert (child.data_dir, child.server, child.stores) == (tmp_path, mine.server, mine.stores)


def test_addresses_that_were_given_are_kept(tmp_path: Path) -> None:
    url, queue = "postgresql+psycopg://db/x", "redis://broker:6379/0"
    given = Settings(tmp_path, stores=Stores(database_url=url, redis_url=queue))
    assert with_stores(given).stores == given.stores


def test_what_takes_requests_ends_first_and_what_others_need_last(tmp_path: Path) -> None:
    assert [p.name for p in parts(Settings(tmp_path))] == ["gateway", "worker", "api"]


def test_over_ssh_the_line_that_brings_the_port_home_is_known(tmp_path: Path) -> None:
    settings = Settings(tmp_path)
    there = {"SSH_CONNECTION": "198.51.100.7 50000 203.0.113.9 2222", "USER": "ada"}
    assert tunnel(settings, {}) is None
    line = "ssh -N -L 8400:127.0.0.1:8400 -p 2222 ada@203.0.113.9"
    assert tunnel(settings, there) == line
    assert tunnel(settings, {"SSH_CONNECTION": "garbage"}) is None
