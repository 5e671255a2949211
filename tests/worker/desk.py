"""Reconcilers over a real database and a fake driver, and what an API would have written."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import insert, text, update
from sqlalchemy.orm import Session, sessionmaker

from controlplane.domain.deployment import DeploymentId, IntentKind, Replica
from controlplane.domain.phases import Desired, Phase
from controlplane.domain.tiers import Device, DeviceKind
from controlplane.persistence import deployments, intents, replicas, status
from controlplane.persistence.mapping import to_status
from controlplane.persistence.session import make_engine, make_sessions
from controlplane.persistence.tables import (
    DeploymentRow,
    GatewayRow,
    RouteEpoch,
    StatusRow,
    Workspace,
)
from controlplane.settings import Engines, Settings, Traffic
from worker.drivers.fake import FakeDriver, FakeWorld
from worker.reconciler.loop import Reconciler
from worker.watchdog import Watchdog

SPEC = {"model": "local/target", "tier": "cpu", "scale_down": {"policy": "never"}}


def prepare(session: Session) -> None:
    """What the bootstrap leaves: a workspace and the epoch."""
    session.execute(text("INSERT INTO workspaces (id) VALUES ('default') ON CONFLICT DO NOTHING"))
    if session.get(RouteEpoch, 1) is None:
        session.execute(insert(RouteEpoch).values(id=1, epoch=1))
    assert session.get(Workspace, "default") is not None


def deploy(session: Session, name: str, **spec: Any) -> DeploymentId:
    deployment_id = f"dep_{name.upper()}"
    assert deployments.add(
        session,
        deployment_id=deployment_id,
        workspace="default",
        name=name,
        spec={"name": name, **SPEC, **spec},
        engine_key=secrets.token_urlsafe(8),
    )
    return DeploymentId(deployment_id)


@dataclass
class Desk:
    settings: Settings
    slots: int = 1
    world: FakeWorld = field(default_factory=FakeWorld)

    def __post_init__(self) -> None:
        self.settings = replace(
            self.settings,
            driver="fake",
            engines=Engines(retry_first=0.05, stop_grace=0.5),
            traffic=Traffic(settle=0, minimum_uptime=0, gateway_silent=60),
        )
        self.world.devices = tuple(
            Device(f"cpu-{n}", DeviceKind.CPU, "Test CPU", 2**33, cores=(n,))
            for n in range(self.slots)
        )
        self.engine = make_engine(self.settings, "test")
        self.sessions: sessionmaker[Session] = make_sessions(self.engine)
        with self.sessions.begin() as session:
            prepare(session)

    def close(self) -> None:
        self.engine.dispose()

    def reconciler(self, owner: str = "w1") -> Reconciler:
        driver = FakeDriver(self.world)
        return Reconciler(self.settings, self.sessions, driver, owner, Watchdog())

    def deploy(self, name: str, **spec: Any) -> DeploymentId:
        with self.sessions.begin() as session:
            return deploy(session, name, **spec)

    def row(self, deployment_id: str) -> StatusRow:
        with self.sessions.begin() as session:
            found = session.get(StatusRow, deployment_id)
            assert found is not None
            return found

    def phase(self, deployment_id: str) -> Phase:
        return to_status(self.row(deployment_id)).phase

    def rows(self) -> list[Replica]:
        with self.sessions.begin() as session:
            return replicas.load_all(session)

    def desire(self, deployment_id: str, desired: Desired) -> None:
        with self.sessions.begin() as session:
            session.execute(
                update(DeploymentRow)
                .where(DeploymentRow.id == deployment_id)
                .values(desired=str(desired))
            )

    def ask(self, deployment_id: str, kind: IntentKind) -> None:
        with self.sessions.begin() as session:
            intents.append(
                session, deployment_id, kind, asked_by="key:a", expires_in=timedelta(minutes=1)
            )

    def gateway(self, **activity: Any) -> None:
        """A gateway that lives and follows every epoch."""
        with self.sessions.begin() as session:
            session.merge(GatewayRow(id="g1", epoch=2**40, activity=activity), load=True)
            session.execute(text("UPDATE gateways SET seen_at = clock_timestamp()"))

    def sql(self, query: str, **values: Any) -> Any:
        with self.sessions.begin() as session:
            return session.execute(text(query), values).scalar()

    def until(self, deployment_id: str, phase: Phase, looks: int = 60) -> None:
        """Reconcile everything in turns until one is in `phase`."""
        reconciler = self.reconciler()
        for _ in range(looks):
            if self.phase(deployment_id) is phase:
                return
            with self.sessions.begin() as session:
                ids = [row.id for row, _ in status.load_all(session)]
            for i in ids:
                reconciler.reconcile(i)
        raise AssertionError(f"{self.row(deployment_id).phase}: {self.row(deployment_id).message}")
