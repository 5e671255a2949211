"""The API over a real database, in this process; every answer is held to the OpenAPI document."""

from __future__ import annotations

import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from controlplane.api.app import create_app
from controlplane.api.server import ApiServer
from controlplane.domain.tiers import GIB, Device, DeviceKind
from controlplane.embedded.postgres import PostgresPlace
from controlplane.paths import DataDir
from controlplane.services.bootstrap import bootstrap
from controlplane.services.site import Site, open_site
from controlplane.settings import Settings, Stores
from tests.api.conformance import Contract

CPU = Device("cpu-0", DeviceKind.CPU, "a processor", 8 * GIB, (0, 1))
SPEC = {"name": "hello", "model": "demo/smollm2-135m"}


@dataclass
class Hints:
    """Keeps what was hinted, in place of a broker."""

    sent: list[str] = field(default_factory=list)

    def reconcile(self, deployment_id: str) -> None:
        self.sent.append(deployment_id)


@pytest.fixture
def hints() -> Hints:
    return Hints()


@pytest.fixture
def admin_key(settings: Settings) -> str:
    bootstrap(settings)
    return DataDir(settings.data_dir).admin_key.read_text().strip()


@pytest.fixture
def site(settings: Settings, admin_key: str, hints: Hints) -> Iterator[Site]:
    """One machine without a GPU, after its first start."""
    made = open_site(settings, hints, lambda: (CPU,))
    yield made
    made.engine.dispose()


@pytest.fixture(scope="session")
def contract() -> Contract:
    return Contract(create_app(None).openapi())


@pytest.fixture
def app(site: Site) -> FastAPI:
    return create_app(site)


@pytest.fixture
def stranger(app: FastAPI, contract: Contract) -> Iterator[TestClient]:
    """A client without a key."""
    with TestClient(app, raise_server_exceptions=False, follow_redirects=False) as client:
        client.event_hooks = {"response": [contract.check]}
        yield client


@pytest.fixture
def client(stranger: TestClient, admin_key: str) -> TestClient:
    """A client with the admin's key."""
    stranger.headers["Authorization"] = f"Bearer {admin_key}"
    return stranger


@pytest.fixture(scope="module")
def one_client(
    postgres_server: PostgresPlace, tmp_path_factory: pytest.TempPathFactory, contract: Contract
) -> Iterator[TestClient]:
    """The admin's client of one api for a whole module, for calls that must change nothing."""
    name = f"t_{uuid.uuid4().hex}"
    with psycopg.connect(
        postgres_server.url("postgres").replace("+psycopg", ""), autocommit=True
    ) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE slipstream_template'.encode())
    settings = Settings(
        tmp_path_factory.mktemp("data"), stores=Stores(database_url=postgres_server.url(name))
    )
    bootstrap(settings)
    key = DataDir(settings.data_dir).admin_key.read_text().strip()
    app = create_app(open_site(settings, Hints(), lambda: (CPU,)))
    with TestClient(app, raise_server_exceptions=False, follow_redirects=False) as client:
        client.event_hooks = {"response": [contract.check]}
        client.headers["Authorization"] = f"Bearer {key}"
        yield client


@pytest.fixture
def key_of(client: TestClient) -> Callable[[str], dict[str, str]]:
    """Headers with a fresh key of a role."""

    def make(role: str) -> dict[str, str]:
        made = client.post("/api/v1/keys", json={"name": f"a {role}", "role": role})
        return {"Authorization": f"Bearer {made.json()['key']}"}

    return make


@pytest.fixture
def deploy(client: TestClient) -> Callable[..., dict[str, Any]]:
    """Makes a deployment and returns its JSON."""

    def make(name: str = "hello", **fields: Any) -> dict[str, Any]:
        made = client.post("/api/v1/deployments", json={**SPEC, "name": name, **fields})
        assert made.status_code == 201, made.text
        body: dict[str, Any] = made.json()
        return body

    return make


@pytest.fixture
def server(app: FastAPI) -> Iterator[tuple[str, Callable[[], None]]]:
    """The same app behind a real socket: its address, and what tells it to end."""
    listening = socket.create_server(("127.0.0.1", 0))
    running = ApiServer(app, listening.getsockname()[1])
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()

    def stop() -> None:
        running.handle_exit(signal.SIGTERM, None)

    yield f"http://127.0.0.1:{listening.getsockname()[1]}", stop
    stop()
    thread.join(20)
    listening.close()
    assert not thread.is_alive()


@pytest.fixture
def live(server: tuple[str, Callable[[], None]], admin_key: str) -> Iterator[httpx2.Client]:
    """The admin's client of the real server, for what streams."""
    headers = {"Authorization": f"Bearer {admin_key}"}
    with httpx2.Client(base_url=server[0], headers=headers, timeout=20, trust_env=False) as client:
        yield client


@pytest.fixture
def stop(server: tuple[str, Callable[[], None]]) -> Callable[[], None]:
    return server[1]


@pytest.fixture
def broken(settings: Settings, contract: Contract) -> Iterator[TestClient]:
    """A client of an api whose database is away."""
    nowhere = replace(
        settings.stores, database_url="postgresql+psycopg://x@/x?host=/nonexistent-socket-folder"
    )
    site = open_site(replace(settings, stores=nowhere), Hints(), lambda: (CPU,))
    with TestClient(create_app(site), raise_server_exceptions=False) as client:
        client.event_hooks = {"response": [contract.check]}
        client.headers["Authorization"] = "Bearer some-admin-key"
        yield client


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder
