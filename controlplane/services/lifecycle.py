"""Pause, resume, sleep and wake. Each asks for it and returns; the reconciler does it.
Repeating one that is done or under way is a no-op."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from controlplane.auth.principals import Action, Principal
from controlplane.domain.deployment import DeploymentId, Intent, IntentKind
from controlplane.domain.phases import Desired, Phase
from controlplane.domain.reasons import Reason
from controlplane.errors import Conflict
from controlplane.persistence import deployments, intents
from controlplane.persistence.deployments import Rows
from controlplane.persistence.tables import DeploymentRow, StatusRow
from controlplane.services.deployments import must_find, record, refuse_deleted
from controlplane.services.site import Site
from controlplane.services.views import View, to_view

WAKE_LASTS = timedelta(minutes=15)
"""How long a person's wake stands when it can't be done at once, as where all slots are busy."""

_COMING_OR_UP = frozenset(
    {Phase.QUEUED, Phase.STARTING, Phase.WAKING, Phase.READY, Phase.UPDATING, Phase.DEGRADED}
)


def pause(site: Site, by: Principal, ref: str) -> View:
    """Stop it by a person's word: only a person starts it again."""
    by.require(Action.DEPLOY)
    with site.begin() as session:
        row, _ = _target(session, by, ref)
        if row.desired != Desired.PAUSED:
            deployments.desire(session, row, Desired.PAUSED)
            record(session, by, row.id, "paused", f"{row.name} is to be paused.")
        view = to_view(must_find(session, by, row.id))
    site.hints.reconcile(view.id)
    return view


def resume(site: Site, by: Principal, ref: str) -> View:
    """Let a paused one run again. Of a failed one it asks for a fresh try at once."""
    by.require(Action.DEPLOY)
    with site.begin() as session:
        row, status = _target(session, by, ref)
        if row.desired == Desired.PAUSED:
            deployments.desire(session, row, Desired.RUNNING)
            record(session, by, row.id, "resumed", f"{row.name} is to run again.")
        elif status.phase == Phase.FAILED:
            _ask(session, by, row, status, IntentKind.WAKE)
        view = to_view(must_find(session, by, row.id))
    site.hints.reconcile(view.id)
    return view


def sleep(site: Site, by: Principal, ref: str) -> View:
    """Put it to sleep now; the next request wakes it. Raises Conflict where it has failed or
    is paused: then it has nothing to wake from."""
    by.require(Action.DEPLOY)
    with site.begin() as session:
        row, status = _target(session, by, ref)
        _refuse_paused(row, "It is stopped already; resume it to let requests wake it.")
        if status.phase == Phase.FAILED:
            raise Conflict(
                "deployment_failed",
                f"{row.name} has failed, so it can't sleep and wake.",
                hint=status.hint or "Change its spec and resume it, or pause it.",
            )
        pending = _pending(session, row, status)
        asleep = status.phase == Phase.ASLEEP or _falling_asleep(status)
        if not (pending is IntentKind.SLEEP or (asleep and pending is None)):
            _ask(session, by, row, status, IntentKind.SLEEP)
        view = to_view(must_find(session, by, row.id))
    site.hints.reconcile(view.id)
    return view


def wake(site: Site, by: Principal, ref: str) -> View:
    """Wake a sleeper, as a request would. Raises Conflict where it is paused."""
    by.require(Action.DEPLOY)
    with site.begin() as session:
        row, status = _target(session, by, ref)
        _refuse_paused(row, f"Start it again: slipstream resume {row.name}.")
        pending = _pending(session, row, status)
        up = Phase(status.phase) in _COMING_OR_UP
        if not (pending is IntentKind.WAKE or (up and pending is None)):
            _ask(session, by, row, status, IntentKind.WAKE)
        view = to_view(must_find(session, by, row.id))
    site.hints.reconcile(view.id)
    return view


def _target(session: Session, by: Principal, ref: str) -> Rows:
    rows = must_find(session, by, ref, lock=True)
    refuse_deleted(rows[0])
    return rows


def _refuse_paused(row: DeploymentRow, hint: str) -> None:
    if row.desired == Desired.PAUSED:
        raise Conflict("deployment_paused", f"{row.name} is paused.", hint=hint)


def _falling_asleep(status: StatusRow) -> bool:
    return status.phase == Phase.DRAINING and status.detail.get("after_drain") == Phase.ASLEEP


def _pending(session: Session, row: DeploymentRow, status: StatusRow) -> IntentKind | None:
    """What the newest intent asks for, where the reconciler has still to handle it."""
    newest: Intent | None = intents.newest(session, [row.id]).get(DeploymentId(row.id))
    now: datetime = session.execute(select(func.now())).scalar_one()
    if newest is None or newest.number <= status.handled_intent or not newest.alive(now):
        return None
    return newest.kind


def _ask(
    session: Session, by: Principal, row: DeploymentRow, status: StatusRow, kind: IntentKind
) -> None:
    if _pending(session, row, status) is kind:
        return
    sleeps = kind is IntentKind.SLEEP
    intents.append(
        session,
        row.id,
        kind,
        asked_by=by.actor,
        reason=Reason.SLEEP_REQUESTED if sleeps else None,
        expires_in=None if sleeps else WAKE_LASTS,
    )
    text = f"{row.name} is to sleep now." if sleeps else f"{row.name} is to be woken."
    record(session, by, row.id, f"{kind}_asked", text)
