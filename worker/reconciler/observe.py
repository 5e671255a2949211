"""Facts: what the database says, read in one short transaction, joined with what the driver
sees, outside of any."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from controlplane.domain.deployment import (
    Deployment,
    DeploymentId,
    DeploymentSpec,
    Intent,
    IntentKind,
    Replica,
    RouteState,
)
from controlplane.domain.phases import Desired, Phase
from controlplane.domain.placement import Holder, Waiter
from controlplane.domain.tiers import Device, Tier, found_tiers, here, merge
from controlplane.errors import Invalid
from controlplane.persistence import activity as activity_rows
from controlplane.persistence import intents, replicas, status
from controlplane.persistence.activity import Beat, Clock
from controlplane.persistence.mapping import to_deployment, to_status
from controlplane.persistence.tables import DeploymentRow, StatusRow
from controlplane.settings import Settings
from controlplane.telemetry import logger
from worker.drivers.base import Driver, Observation, Unreachable
from worker.reconciler.facts import Facts, GatewaySaid, Limits, World, activity
from worker.reconciler.target import aim

_SETTLED = frozenset({Phase.READY, Phase.DEGRADED})
_UP = frozenset({Phase.WAKING, Phase.READY, Phase.DEGRADED, Phase.UPDATING})
_GOING = frozenset({Phase.DRAINING, Phase.STOPPING, Phase.FAILED})
_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """One deployment as stored. `spec_error` says why its spec can't be read."""

    deployment: Deployment
    engine_key: str
    spec_error: str = ""


@dataclass(frozen=True, slots=True)
class Book:
    """What the database said at one moment."""

    clock: Clock
    entries: Mapping[DeploymentId, Entry]
    replicas: tuple[Replica, ...]
    intents: Mapping[DeploymentId, Intent]
    beats: tuple[Beat, ...]


def limits(settings: Settings) -> Limits:
    """The settings as the plan takes them."""
    e, t = settings.engines, settings.traffic
    return Limits(
        attempts=e.attempts,
        retry_first=timedelta(seconds=e.retry_first),
        retry_cap=timedelta(seconds=e.retry_cap),
        steady_after=timedelta(seconds=e.steady_after),
        start_timeout=timedelta(seconds=e.start_timeout),
        stop_grace=timedelta(seconds=e.stop_grace),
        drain_limit=timedelta(seconds=t.drain_limit),
        minimum_uptime=timedelta(seconds=t.minimum_uptime),
    )


def read(session: Session, ids: Collection[str] | None = None) -> Book:
    """Everything that is not deleted, or `ids` only."""
    rows = [_entry(*row) for row in status.load_all(session, ids)]
    entries = {e.deployment.id: e for e in rows}
    return Book(
        clock=activity_rows.clock(session),
        entries=entries,
        replicas=tuple(replicas.load_all(session, ids)),
        intents=intents.newest(session, list(entries)),
        beats=tuple(activity_rows.beats(session)),
    )


def _entry(row: DeploymentRow, status_row: StatusRow) -> Entry:
    try:
        return Entry(to_deployment(row, status_row), status_row.engine_key)
    except Invalid as e:
        # One bad row never blocks others, and it can still be paused and deleted.
        bare = Deployment(
            id=DeploymentId(row.id),
            workspace=row.workspace,
            name=row.name,
            spec=DeploymentSpec(name=row.name, model="", tier=""),
            generation=row.generation,
            desired=Desired(row.desired),
            created_at=row.created_at,
            updated_at=row.updated_at,
            status=to_status(status_row),
        )
        return Entry(bare, status_row.engine_key, e.message)


class Lookout:
    """Joins the book with the driver's view into facts."""

    def __init__(self, settings: Settings, driver: Driver) -> None:
        self._settings, self._driver = settings, driver
        self._limits = limits(settings)

    def devices(self) -> tuple[Device, ...] | None:
        """Raises Unreachable."""
        found = self._driver.devices()
        return None if found is None else tuple(found)

    def observe(
        self, entries: Collection[Entry], devices: tuple[Device, ...] | None
    ) -> Mapping[DeploymentId, Observation]:
        """One bulk look; empty when nothing could be told."""
        tiers = self.tiers(devices)
        aimed = [_aimed(e, tiers.get(e.deployment.spec.tier)) for e in entries]
        try:
            return self._driver.observe(aimed)
        except Unreachable as e:
            _log.warning("driver_unreachable", error=str(e))
            return {}

    def tiers(self, devices: tuple[Device, ...] | None) -> dict[str, Tier]:
        return merge(self._settings.tiers, found_tiers(devices or ()))

    def facts(
        self,
        book: Book,
        entry: Entry,
        seen: Observation | None,
        devices: tuple[Device, ...] | None,
    ) -> Facts:
        d = entry.deployment
        tiers = self.tiers(devices)
        settle = timedelta(seconds=self._settings.traffic.settle)
        return Facts(
            deployment=d,
            tier=tiers.get(d.spec.tier),
            replicas=tuple(r for r in book.replicas if r.deployment_id == d.id),
            seen=seen,
            gateways=self._gateways(book, d.id),
            settled=book.clock.now - book.clock.database_since >= settle,
            intent=book.intents.get(d.id),
            world=World() if devices is None else self._world(book, devices, tiers, settle),
            now=book.clock.now,
            limits=self._limits,
            spec_error=entry.spec_error,
        )

    def _gateways(self, book: Book, deployment_id: str) -> tuple[GatewaySaid, ...]:
        silent = timedelta(seconds=self._settings.traffic.gateway_silent)
        return tuple(
            _said(b, deployment_id, live=book.clock.now - b.seen_at <= silent) for b in book.beats
        )

    def _world(
        self, book: Book, devices: tuple[Device, ...], tiers: Mapping[str, Tier], settle: timedelta
    ) -> World:
        settled = book.clock.now - book.clock.database_since >= settle
        names = {i: e.deployment.name for i, e in book.entries.items()}
        held = [r for r in book.replicas if r.deployment_id in names]
        return World(
            devices=devices,
            taken={device: names[r.deployment_id] for r in held for device in r.devices},
            leaving=frozenset(
                device
                for r in held
                if _is_leaving(book, book.entries[r.deployment_id].deployment, r)
                for device in r.devices
            ),
            waiters=tuple(_waiters(book, devices, tiers)),
            holders=tuple(
                self._holder(book, d, held, settled=settled)
                for d in (e.deployment for e in book.entries.values() if not e.spec_error)
                if any(r.deployment_id == d.id for r in held)
            ),
        )

    def _holder(self, book: Book, d: Deployment, held: list[Replica], *, settled: bool) -> Holder:
        act = activity(self._gateways(book, d.id), settled=settled)
        moments = [m for m in (d.status.last_active_at, act.last_byte_at) if m]
        return Holder(
            id=d.id,
            name=d.name,
            devices=tuple(x for r in held if r.deployment_id == d.id for x in r.devices),
            policy=d.spec.scale_down.policy,
            settled=d.status.phase in _SETTLED and act.known and not act.in_flight,
            ready_since=d.status.first_ready_at,
            last_active_at=max(moments, default=None),
        )


def _aimed(entry: Entry, tier: Tier | None) -> Deployment:
    try:
        return aim(entry.deployment, tier)
    except Invalid:  # no engine serves its tier: the plan says so
        return entry.deployment


def _said(beat: Beat, deployment_id: str, *, live: bool) -> GatewaySaid:
    said: Mapping[str, Any] = beat.activity.get(deployment_id) or {}
    age = said.get("age_ms")
    return GatewaySaid(
        live=live,
        epoch=beat.epoch,
        in_flight=int(said.get("in_flight", 0)),
        held=int(said.get("held", 0)),
        last_byte_at=None
        if age is None
        else beat.seen_at - timedelta(milliseconds=max(0.0, float(age))),
        replicas={str(k): int(n) for k, n in (said.get("replicas") or {}).items()},
    )


def _is_leaving(book: Book, d: Deployment, row: Replica) -> bool:
    """Its devices are about to be free: it goes, or was asked to."""
    i = book.intents.get(d.id)
    asked = (
        i is not None
        and i.kind is IntentKind.SLEEP
        and i.number > d.status.handled_intent
        and i.alive(book.clock.now)
    )
    going = d.status.phase in _GOING or d.desired is not Desired.RUNNING
    return asked or going or row.route is RouteState.DRAINING


def _waiters(book: Book, devices: tuple[Device, ...], tiers: Mapping[str, Tier]) -> list[Waiter]:
    found = []
    for entry in book.entries.values():
        d = entry.deployment
        tier = tiers.get(d.spec.tier)
        since = d.status.waiting_since
        if since is None or tier is None or entry.spec_error or d.desired is not Desired.RUNNING:
            continue
        if not here(tier, devices):
            continue
        i = book.intents.get(d.id)
        wished = i is not None and i.kind is IntentKind.WAKE and i.alive(book.clock.now)
        found.append(Waiter(d.id, d.name, tier, since, waking=wished or d.status.phase in _UP))
    return found


def stranger(deployment_id: str, clock: Clock) -> Deployment:
    """A deployment of which no more than its id is known, to look at what it left."""
    return Deployment(
        id=DeploymentId(deployment_id),
        workspace="",
        name="",
        spec=replace(DeploymentSpec(name="", model="", tier="")),
        generation=0,
        desired=Desired.DELETED,
        created_at=clock.now,
        updated_at=clock.now,
    )
