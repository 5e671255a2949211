"""Waiting for a phase: what is decided, and how the way there is shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from controlplane.cli.client import Client, Object, at
from controlplane.cli.output import console, lit, named, note, plain, span
from controlplane.errors import AppError, Kind, Unavailable

if TYPE_CHECKING:
    from rich.status import Status

LOOK_EVERY = 0.5  # seconds
STALL = 600.0  # seconds without any move after which a wait ends by itself
GRACE = 5.0  # seconds in which a resting one may still begin to move, after a resume or a wake
SILENCE = 120.0  # seconds of a server that does not answer
_ENDS = {"failed", "asleep", "paused", "stopping", "deleted"}
_STEPS = {
    "InstallingEngine": "installing the engine",
    "WaitingForGpu": "waiting for a free slot",
    "DownloadingWeights": "downloading weights",
    "LoadingWeights": "loading weights",
    "StartingEngine": "starting the engine",
    "WarmingUp": "warming up",
    "FinishingRequests": "finishing requests",
}


class WaitEnded(AppError):
    """The wait ended otherwise than asked."""

    kind = Kind.REFUSED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__("wait_ended", message, hint=hint)


class Reporter(Protocol):
    """Is told of each look, and shows what is new."""

    def show(self, deployment: Object) -> None: ...

    def silent(self) -> None: ...


@dataclass
class Wait:
    """One wait for `target`. `limit` bounds the whole, `stall` the time without any move;
    both in seconds, as `clock` counts them."""

    target: str = "ready"
    limit: float | None = None
    stall: float = STALL
    clock: Callable[[], float] = time.monotonic
    _began: float = field(init=False)
    _moved: float = field(init=False)
    _seen: object = None
    _looks: int = 0

    def __post_init__(self) -> None:
        self._began = self._moved = self.clock()

    def done(self, deployment: Object) -> bool:
        """True when it is there. Raises WaitEnded when it can't come there any more by itself,
        or nothing moved for too long."""
        status = status_of(deployment)
        phase = status.get("phase")
        seen = (deployment.get("observed_generation"), *(map(repr, status.values())))
        if seen != self._seen:
            self._seen, self._moved = seen, self.clock()
            self._looks += 1
        current = _current(deployment)
        if phase == self.target and current:
            return True
        if phase in _ENDS and current and self._settled(deployment, str(phase)):
            raise self._ended(deployment)
        self.check(deployment)
        return False

    def check(self, deployment: Object | None) -> None:
        """Raises WaitEnded when its time is up."""
        now, name = self.clock(), plain((deployment or {}).get("name")) or "It"
        stands = _stands(deployment)
        if self.limit is not None and now - self._began >= self.limit:
            raise WaitEnded(
                f"{name} is not {self.target} after {span(self.limit)}.{stands}",
                hint=f"It goes on without this wait: slipstream wait {name}",
            )
        if now - self._moved >= self.stall:
            raise WaitEnded(
                f"Nothing moved for {span(self.stall)}: {name} is not {self.target}.{stands}",
                hint=f"See slipstream logs {name}, and slipstream doctor.",
            )

    def _settled(self, deployment: Object, phase: str) -> bool:
        """True when no move can be expected. What was asked just before may not have been
        seen yet, so a first look at rest is given some time."""
        if phase == "paused" and deployment.get("desired") == "paused":
            return True
        moves = phase == "stopping" and self.target == "deleted"
        return not moves and (self._looks > 1 or self.clock() - self._began >= GRACE)

    def _ended(self, deployment: Object) -> WaitEnded:
        status, name = status_of(deployment), plain(deployment.get("name"))
        phase = plain(status.get("phase"))
        hint = named(status.get("hint"), name)
        if phase in ("asleep", "paused"):
            word = "wake" if phase == "asleep" else "resume"
            hint = f"Start it: slipstream {word} {name}"
        return WaitEnded(f"{name} is {phase}.{_stands(deployment)}", hint)


def wait_for(
    client: Client, name: str, wait: Wait, reporter: Reporter, *, every: float = LOOK_EVERY
) -> Object | None:
    """Look until `wait` is done; returns the deployment, or None once it is deleted. A server
    that goes away meanwhile may come back; one that was never there may not."""
    last: Object | None = None
    answered = wait.clock()
    while True:
        try:
            last = client.get(at(str(last["id"]) if last and "id" in last else name))
            answered = wait.clock()
            reporter.show(last)
            if wait.done(last):
                return last
        except WaitEnded:
            raise
        except AppError as e:
            if e.kind is Kind.NOT_FOUND and wait.target == "deleted":
                return None
            if e.kind is Kind.NOT_FOUND and last is not None:
                raise WaitEnded(f"{plain(last.get('name'))} was deleted.") from e
            silent = e.kind is Kind.UNAVAILABLE and wait.clock() - answered < SILENCE
            if last is None or not silent:
                raise
            reporter.silent()
            wait.check(last)
        time.sleep(every)


def status_of(deployment: Object) -> dict[str, Any]:
    status = deployment.get("status")
    if not isinstance(status, dict):
        raise Unavailable(
            "not_slipstream", "The server's answer is no deployment.", hint="Check SLIPSTREAM_URL."
        )
    return status


def _current(deployment: Object) -> bool:
    """Whether the status speaks of the newest spec."""
    seen, wanted = deployment.get("observed_generation"), deployment.get("generation")
    return not (isinstance(seen, int) and isinstance(wanted, int)) or seen >= wanted


def _stands(deployment: Object | None) -> str:
    status = status_of(deployment) if deployment else {}
    message, reason = plain(status.get("message")), plain(status.get("reason"))
    if message:
        return f" {message}"
    return f" {reason}." if reason else ""


def step_of(deployment: Object) -> str:
    """What goes on, in a few words."""
    status = status_of(deployment)
    reason = plain(status.get("reason"))
    return _STEPS.get(reason, reason) or plain(status.get("phase"))


def how_far(deployment: Object) -> str:
    """How far the step is, where that is known: ` 42 %, 3m left`."""
    progress = status_of(deployment).get("progress")
    if not isinstance(progress, dict):
        return ""
    fraction, eta = progress.get("fraction"), progress.get("eta_seconds")
    told = f" {fraction:.0%}".replace("%", " %") if isinstance(fraction, int | float) else ""
    return told + (f", {span(eta)} left" if isinstance(eta, int | float) else "")


class Steps:
    """Shows a wait: a line for each step that was finished, with how long it took; on a
    terminal the one that goes on as well, moving."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._step, self._phase, self._message = "", "", ""
        self._since = self._began = clock()
        self._live: Status | None = None
        self._quiet = False

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._live = console(stderr=True).status("")
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, deployment: Object) -> None:
        self._quiet = False
        status, step = status_of(deployment), step_of(deployment)
        message, now = plain(status.get("message")), self._clock()
        if step != self._step:
            self._finish(now)
            self._step, self._since = step, now
            self._phase = plain(status.get("phase"))
            self._begin(message)
        elif message != self._message and self._live is None and step == "waiting for a free slot":
            note(f"  {message}")
        self._message = message
        self._move(deployment, now)

    def silent(self) -> None:
        if not self._quiet:
            self._quiet = True
            self._print("the server does not answer at the moment")

    def _begin(self, message: str) -> None:
        if self._live is None:
            note(f"  {self._step} ..." + (f" {message}" if message else ""))

    def _finish(self, now: float) -> None:
        if self._step and self._live is not None:
            self._print(f"{self._step}  {span(now - self._since)}")

    def _print(self, text: str) -> None:
        if self._live is None:
            note(f"  {text}")
        else:
            self._live.console.print(f"  {text}", style="bright_black")

    def _move(self, deployment: Object, now: float) -> None:
        if self._live is None:
            return
        from rich.text import Text

        status = status_of(deployment)
        took = span(now - self._since)
        head = lit(status.get("light"), status.get("phase"))
        detail = self._message if self._step in ("", self._phase) else self._step
        self._live.update(Text.assemble(head, f"  {detail}{how_far(deployment)}  {took}"))
