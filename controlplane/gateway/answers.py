"""What each state of a deployment answers, as a table, in OpenAI's form. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from controlplane.domain.deployment import WakeMode
from controlplane.domain.phases import Desired, Phase
from controlplane.gateway.routes import Route

DEFAULT_START_SECONDS = 30.0
_SHORTEST_RETRY, _LONGEST_RETRY = 1, 600
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    502: "server_error",
    503: "service_unavailable",
}


class Standing(StrEnum):
    """What a deployment without a replica that could take the request means for it."""

    WAKE = "wake"  # it comes, or can be made to: the wake rule
    PAUSED = "paused"
    FAILED = "failed"
    GONE = "gone"


BY_PHASE: Mapping[Phase, Standing] = MappingProxyType(
    {
        Phase.QUEUED: Standing.WAKE,
        Phase.STARTING: Standing.WAKE,
        Phase.READY: Standing.WAKE,  # the route is stale, or its replica refuses
        Phase.UPDATING: Standing.WAKE,
        Phase.DEGRADED: Standing.WAKE,
        Phase.DRAINING: Standing.WAKE,
        Phase.ASLEEP: Standing.WAKE,
        Phase.WAKING: Standing.WAKE,
        Phase.PAUSED: Standing.PAUSED,
        Phase.FAILED: Standing.FAILED,
        Phase.STOPPING: Standing.GONE,
        Phase.DELETED: Standing.GONE,
    }
)


def standing(route: Route) -> Standing:
    """What holds when no replica can take a request. What a person wants goes before what the
    reconciler has come to: a pause that is still draining pauses, and a resume that nothing
    was done about yet may be waited for."""
    if route.gone:
        return Standing.GONE
    if route.desired is Desired.PAUSED:
        return Standing.PAUSED
    by_phase = BY_PHASE[route.phase]
    return Standing.WAKE if by_phase is Standing.PAUSED else by_phase


@dataclass(frozen=True, slots=True)
class Answer:
    """An error in OpenAI's form. `retry_after` is in seconds; None where waiting alone does
    not help, and then official clients are told not to try again."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after: int | None = None
    allow: str | None = None

    @property
    def object(self) -> dict[str, object]:
        kind = _TYPES.get(self.status, "invalid_request_error")
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param,
                "code": self.code,
            }
        }

    @property
    def body(self) -> bytes:
        return json.dumps(self.object).encode()

    @property
    def event(self) -> bytes:
        """The same as the end of a stream that has begun."""
        return b"\n\ndata: " + self.body + b"\n\ndata: [DONE]\n\n"

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        made = [(b"content-type", b"application/json")]
        if self.retry_after is not None:
            made.append((b"retry-after", str(self.retry_after).encode()))
        elif self.status >= 500:
            made.append((b"x-should-retry", b"false"))
        if self.allow is not None:
            made.append((b"allow", self.allow.encode()))
        if self.status == 401:
            made.append((b"www-authenticate", b"Bearer"))
        return made


class Answered(Exception):
    """The request ends here, with this answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.code)
        self.answer = answer


def retry_after(route: Route) -> int:
    """Whole seconds after which to try again: about how long its last start took."""
    seconds = route.start_seconds or DEFAULT_START_SECONDS
    return min(_LONGEST_RETRY, max(_SHORTEST_RETRY, math.ceil(seconds)))


def unknown_model(name: str, near: Sequence[str] = ()) -> Answer:
    shown = name if len(name) <= 100 else name[:100] + "..."
    meant = f" Did you mean: {', '.join(near)}?" if near else ""
    return Answer(404, "model_not_found", f"There is no model {shown!r} here.{meant}", "model")


def without_replica(route: Route, near: Sequence[str] = ()) -> Answer | None:
    """What a request gets while no replica can take it; None: it is held."""
    stands = standing(route)
    if stands is Standing.GONE:
        return unknown_model(route.name, near)
    if stands is Standing.PAUSED:
        return Answer(
            503,
            "deployment_paused",
            f"{route.name} was paused by a person and starts only by a person's word"
            f" (slipstream resume {route.name}).",
        )
    if stands is Standing.FAILED:
        why = _sentences(route) or "It can't be started."
        reason = f" ({route.reason})" if route.reason else ""
        return Answer(503, "deployment_failed", f"{route.name} has failed{reason}: {why}")
    if route.wake.mode is WakeMode.REJECT:
        return Answer(
            503,
            "deployment_waking",
            f"{route.name} is {route.phase} and is being made ready: try again.{_because(route)}",
            retry_after=retry_after(route),
        )
    return None


def too_late(route: Route) -> Answer:
    """The wake deadline passed while the request was held."""
    return Answer(
        503,
        "wake_deadline_exceeded",
        f"{route.name} was not ready in time; it is {route.phase}.{_because(route)}",
        retry_after=retry_after(route),
    )


def too_many_waiting(route: Route) -> Answer:
    return Answer(
        429,
        "too_many_waiting",
        f"{route.wake.max_waiting} requests already wait for {route.name} to be ready.",
        retry_after=retry_after(route),
    )


def waiting_room_full(route: Route) -> Answer:
    return Answer(
        503,
        "waiting_room_full",
        "The requests that wait here for models to be ready are too large together.",
        retry_after=retry_after(route),
    )


STOPPING = Answer(
    503, "gateway_stopping", "This gateway is being stopped: try again.", retry_after=2
)
NOT_LOADED = Answer(
    503,
    "routes_not_loaded",
    "This gateway does not know its models yet: try again.",
    retry_after=1,
)
UNAUTHENTICATED = Answer(
    401, "invalid_api_key", "A valid API key is needed: Authorization: Bearer sl_..."
)
FORBIDDEN = Answer(
    403, "forbidden", "This key's role may not call models: use a member's or an admin's key."
)
ENGINE_LOST = Answer(
    503,
    "engine_lost",
    "The engine went away before it answered. The request may be sent again.",
    retry_after=1,
)
ENGINE_DIED = Answer(502, "engine_died", "The engine went away in the middle of its answer.")
ENGINE_SILENT = Answer(502, "engine_silent", "The engine sent nothing for too long.")
INTERNAL = Answer(500, "internal_error", "The gateway met a fault of its own; it is logged.")


def no_such_path(path: str) -> Answer:
    shown = path[:100].encode("unicode_escape").decode()
    return Answer(404, "not_found", f"There is no {shown} here.")


def wrong_method(allowed: str) -> Answer:
    return Answer(405, "method_not_allowed", f"This address takes {allowed} only.", allow=allowed)


def _because(route: Route) -> str:
    why = _sentences(route)
    return f" {why}" if why else ""


def _sentences(route: Route) -> str:
    return " ".join(part for part in (route.message, route.hint) if part)
