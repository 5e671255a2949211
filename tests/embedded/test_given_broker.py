"""A broker that somebody else runs is asked, and named without its password."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from controlplane.embedded import valkey


@pytest.mark.system
def test_a_given_broker_that_runs_answers(valkey_url: str) -> None:
    assert valkey.given_answers(valkey_url)


def test_a_given_broker_that_is_gone_does_not(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        assert not valkey.given_answers(f"redis://127.0.0.1:{port}/0")
        assert not valkey.given_answers(f"rediss://127.0.0.1:{port}/0")
    assert not valkey.given_answers(f"unix://{tmp_path}/none.sock?db=0")


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://user:secret@broker:6380/0", "broker:6380"),
        ("rediss://:secret@broker/0", "broker:6379"),
        ("redis://[::1]/0", "[::1]:6379"),
        ("unix:///run/valkey.sock?db=2", "/run/valkey.sock"),
    ],
)
def test_where_a_broker_is_can_be_said_without_its_password(url: str, where: str) -> None:
    assert valkey.shown(url) == where
