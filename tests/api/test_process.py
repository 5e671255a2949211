"""The api as a process of its own, as the supervisor starts it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import httpx2
import pytest

from controlplane.settings import Settings

pytestmark = pytest.mark.system


def start(settings: Settings, port: int, **more: str) -> subprocess.Popen[str]:
    environ = {
        "PATH": os.environ["PATH"],
        "SLIPSTREAM_DATA_DIR": str(settings.data_dir),
        "SLIPSTREAM_DATABASE_URL": settings.stores.database_url or "",
        "SLIPSTREAM_REDIS_URL": settings.stores.redis_url or "",
        "SLIPSTREAM_API_PORT": str(port),
        **more,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "controlplane.api"], env=environ, stderr=subprocess.PIPE, text=True
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port: int = s.getsockname()[1]
    return port


def until_ready(process: subprocess.Popen[str], port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1]
        try:
            if httpx2.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == 200:
                return
        except httpx2.TransportError:
            continue  # it still starts
    raise AssertionError("it did not come up")


def test_it_serves_deploys_and_ends_cleanly_on_sigterm(settings: Settings, admin_key: str) -> None:
    port = free_port()
    process = start(settings, port)
    try:
        until_ready(process, port)
        headers = {"Authorization": f"Bearer {admin_key}"}
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}/api/v1", headers=headers) as client:
            spec = {"name": "hello", "model": "demo/smollm2-135m", "tier": "cpu"}
            made = client.post("/deployments", json=spec)
            assert made.status_code in (201, 409), made.text  # 409 where it found a GPU instead
            with client.stream("GET", "/stream") as stream:
                lines = stream.iter_lines()
                assert next(lines)
                process.send_signal(signal.SIGTERM)
                assert all("Traceback" not in line for line in lines)  # to its end
        assert process.wait(20) == 0
    finally:
        process.kill()
        _, log = process.communicate()
    assert admin_key not in log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"SLIPSTREAM_DATABASE_URL": ""}, "No database"),
        ({"SLIPSTREAM_API_PORT": "many"}, "SLIPSTREAM_API_PORT"),
    ],
)
def test_a_fault_in_its_settings_is_one_sentence(
    settings: Settings, more: dict[str, str], word: str
) -> None:
    process = start(settings, 0, **more)
    _, log = process.communicate(timeout=60)
    assert process.returncode == 1
    assert word in log
    assert "Traceback" not in log
    assert len(log.strip().splitlines()) == 1


def test_a_taken_port_ends_it(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start(settings, taken.getsockname()[1])
        _, log = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "address already in use" in log
    assert "Traceback" not in log
