"""Finding a replica for a request: by the routes in force, by counts, by the wake rule. Knows
nothing of how bytes move."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from controlplane.gateway import answers
from controlplane.gateway.answers import Answered
from controlplane.gateway.book import Book
from controlplane.gateway.counts import Counts, Flight
from controlplane.gateway.refusals import Refusals
from controlplane.gateway.routes import Route, Target, choose
from controlplane.gateway.waiting import Bound, Place, WaitingRoom
from controlplane.gateway.wakes import LIFETIME, Wakes
from controlplane.telemetry import WAKE_SECONDS


@dataclass(frozen=True, slots=True)
class Request:
    """What placing needs to know of a request. The wake deadline counts from `arrived`."""

    workspace: str
    model: str
    size: int
    arrived: float


@dataclass(frozen=True, slots=True)
class Sending:
    """A replica that was chosen and counted: `flight` must be ended whatever happens."""

    route: Route
    target: Target
    flight: Flight


class Dispatcher:
    """`wake_stored_soon` is called when there is a new wake to store."""

    def __init__(
        self,
        book: Book,
        room: WaitingRoom,
        counts: Counts,
        wakes: Wakes,
        *,
        wake_stored_soon: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.book, self.room, self.counts, self.wakes = book, room, counts, wakes
        self.refusals = Refusals()
        book.changed = self.routes_changed
        self._wake_stored_soon, self._clock = wake_stored_soon, clock

    async def place(self, request: Request) -> Sending:
        """A replica for the request, now or after it was held. Raises Answered when there is
        none and waiting does not help, or not in time."""
        route = self._find(request)
        self.counts.touch(route.id, self._clock())
        sending = self._choose(route, self._clock())
        if sending is None:
            self._or_answer(route)
            sending = await self._hold(route, request)
        return sending

    def refused(self, sending: Sending) -> None:
        """Nothing was accepted there: the route is stale, or the replica is going. It is left
        out for a while, and the request may be placed again."""
        sending.flight.end()
        self.refusals.note(sending.target.endpoint, self._clock())

    def answered(self, sending: Sending) -> None:
        self.refusals.clear(sending.target.endpoint)

    def routes_changed(self, deployment_ids: set[str]) -> None:
        """A new table is in force: whoever waits for these looks again."""
        self.refusals.keep({t.endpoint for r in self.book.table for t in r.targets})
        self.room.ring(deployment_ids)

    def renew_wakes(self) -> None:
        """Keep the wakes alive that somebody waits for, and forget the others in time."""
        now, held = self._clock(), self.room.held()
        for deployment_id in held:
            route = self.book.table.by_id(deployment_id)
            if route is not None:
                self._wake(route)
        self.wakes.expire(now, held)

    def _find(self, request: Request) -> Route:
        table = self.book.table
        route = table.find(request.workspace, request.model)
        if route is None:
            near = table.near(request.workspace, request.model)
            raise Answered(answers.unknown_model(request.model, near))
        return route

    def _choose(self, route: Route, now: float) -> Sending | None:
        """Choose and count in one step: no heartbeat comes between."""
        left_out = {t.key for t in route.targets if self.refusals.left_out(t.endpoint, now) > 0}
        target = choose(route.targets, lambda t: self.counts.at(route.id, t.key), left_out)
        if target is None:
            return None
        return Sending(route, target, self.counts.begin(route.id, target.key, now))

    def _or_answer(self, route: Route) -> None:
        """Raises what a request gets at once; returns when it is to be held."""
        answer = answers.without_replica(route)
        if answer is None:
            return
        if answer.retry_after is not None:
            self._wake(route, held=False, lifetime=max(LIFETIME, 2.0 * answer.retry_after))
        raise Answered(answer)

    async def _hold(self, route: Route, request: Request) -> Sending:
        if self.room.closed:
            raise Answered(answers.STOPPING)
        place = self.room.enter(route.id, request.size, route.wake.max_waiting)
        if place is Bound.PLACES:
            raise Answered(answers.too_many_waiting(route))
        if place is Bound.BYTES:
            raise Answered(answers.waiting_room_full(route))
        assert isinstance(place, Place)
        try:
            self._wake(route)
            sending = await self._released(route, request, place)
        finally:
            place.leave()
            self.counts.touch(route.id, self._clock())
            if not self.room.waits(route.id):
                self.wakes.over(route.id)
        WAKE_SECONDS.observe(self._clock() - request.arrived)
        return sending

    async def _released(self, route: Route, request: Request, place: Place) -> Sending:
        """Look again at each ring of the bell, and when a refusal's while is over."""
        while True:
            place.bell.clear()
            current = self.book.table.by_id(route.id)
            if current is None:
                raise Answered(answers.unknown_model(route.name))
            route = current
            # One reading for the choice and for the wait: with two, a replica whose while ends
            # between them is neither chosen nor waited for, and the request waits for ever.
            now = self._clock()
            if not route.gone and (sending := self._choose(route, now)) is not None:
                return sending
            self._or_answer(route)
            if self.room.closed:
                raise Answered(answers.STOPPING)
            left = request.arrived + route.wake.deadline.total_seconds() - now
            if left <= 0:
                raise Answered(answers.too_late(route))
            waits = [self.refusals.left_out(t.endpoint, now) for t in route.targets]
            await _ring_or_time(place.bell, min([left, *(w for w in waits if w > 0)]))

    def _wake(self, route: Route, *, held: bool = True, lifetime: float = LIFETIME) -> None:
        now = self._clock()
        if self.wakes.want(route.id, route.phase, now, held=held, lifetime=lifetime):
            self._wake_stored_soon()


async def _ring_or_time(bell: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await bell.wait()
    except TimeoutError:
        return
