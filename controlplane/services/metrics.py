"""What is known of a deployment's traffic and speculation: by the gateways, and by the
engines themselves, which are asked now. What can't be told is None, never zero."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from controlplane.auth.principals import Action, Principal
from controlplane.persistence import vitals
from controlplane.persistence.tables import ReplicaRow
from controlplane.services.deployments import must_find
from controlplane.services.site import Site

ASK_SECONDS = 1.0
_LARGEST = 4_000_000  # bytes of one engine's metrics page; a real one has about 60,000
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class EngineNumbers:
    """One replica's own counts since its start. All None: it did not answer."""

    replica: str
    route: str
    answered: bool = False
    running: int | None = None
    waiting: int | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Speculation:
    """Over all replicas that answered. `acceptance` is accepted / drafted tokens;
    `mean_length` is tokens a step of the target: 1 + accepted / drafts."""

    drafts: int
    draft_tokens: int
    accepted_tokens: int
    acceptance: float | None
    mean_length: float | None


@dataclass(frozen=True, slots=True)
class Numbers:
    in_flight: int | None
    held: int | None
    last_active_at: datetime | None
    engines: tuple[EngineNumbers, ...]
    speculation: Speculation | None


def read(site: Site, by: Principal, ref: str) -> Numbers:
    """Asks every replica that has an address, for a second at most."""
    by.require(Action.READ)
    with site.begin() as session:
        row, status = must_find(session, by, ref)
        rows = vitals.replicas(session, row.id)
        silent = site.settings.traffic.gateway_silent
        traffic = vitals.traffic(session, row.id, silent_after=silent)
    engines = _ask_all(rows, status.engine_key)
    moments = [status.last_active_at, traffic.last_byte_at if traffic else None]
    return Numbers(
        in_flight=traffic.in_flight if traffic else None,
        held=traffic.held if traffic else None,
        last_active_at=max((m for m in moments if m), default=None),
        engines=engines,
        speculation=_speculation(engines),
    )


def parse(replica: str, route: str, page: str) -> EngineNumbers:
    """What vLLM's metrics page says, whichever of its spellings; what it doesn't say is None.
    Raises ValueError when it is no metrics page."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            name = sample.name.removesuffix("_total")
            sums[name] = sums.get(name, 0.0) + sample.value

    def whole(name: str) -> int | None:
        value = sums.get(f"vllm:{name}")
        return None if value is None else int(value)

    return EngineNumbers(
        replica=replica,
        route=route,
        answered=True,
        running=whole("num_requests_running"),
        waiting=whole("num_requests_waiting"),
        prompt_tokens=whole("prompt_tokens"),
        generation_tokens=whole("generation_tokens"),
        drafts=whole("spec_decode_num_drafts"),
        draft_tokens=whole("spec_decode_num_draft_tokens"),
        accepted_tokens=whole("spec_decode_num_accepted_tokens"),
    )


def _ask_all(rows: list[ReplicaRow], engine_key: str) -> tuple[EngineNumbers, ...]:
    if not rows:
        return ()
    with concurrent.futures.ThreadPoolExecutor(min(_AT_ONCE, len(rows))) as pool:
        return tuple(pool.map(lambda row: _ask(row, engine_key), rows))


def _ask(row: ReplicaRow, engine_key: str) -> EngineNumbers:
    replica = f"{row.slot}-{row.render_hash}"
    silent = EngineNumbers(replica, row.route)
    if row.endpoint is None:
        return silent
    base = row.endpoint if "://" in row.endpoint else f"http://{row.endpoint}"
    headers = {"Authorization": f"Bearer {engine_key}"}
    try:
        with httpx2.Client(timeout=ASK_SECONDS, trust_env=False) as client:
            answer = client.get(f"{base.rstrip('/')}/metrics", headers=headers)
        if answer.status_code != httpx2.codes.OK or len(answer.content) > _LARGEST:
            return silent
        return parse(replica, row.route, answer.text)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        return silent


def _speculation(engines: Iterable[EngineNumbers]) -> Speculation | None:
    told = [e for e in engines if e.drafts is not None]
    if not told:
        return None
    drafts = sum(e.drafts or 0 for e in told)
    drafted = sum(e.draft_tokens or 0 for e in told)
    accepted = sum(e.accepted_tokens or 0 for e in told)
    return Speculation(
        drafts=drafts,
        draft_tokens=drafted,
        accepted_tokens=accepted,
        acceptance=accepted / drafted if drafted else None,
        mean_length=1 + accepted / drafts if drafts else None,
    )
