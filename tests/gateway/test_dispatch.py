"""Placing a request, whatever the clock reads between two steps."""

import asyncio
import itertools

import pytest

from controlplane.domain.phases import Phase
from controlplane.gateway.book import Book
from controlplane.gateway.counts import Counts
from controlplane.gateway.dispatch import Dispatcher, Request
from controlplane.gateway.keyring import Keyring
from controlplane.gateway.routes import Route, RouteTable, Target
from controlplane.gateway.waiting import WaitingRoom
from controlplane.gateway.wakes import Wakes

ENGINE = Target("0-abc", "http://127.0.0.1:1")


@pytest.mark.parametrize("tick", [0.011, 0.017, 0.023, 0.03, 0.041, 0.06])
def test_a_replicas_while_that_ends_between_two_readings_of_the_clock_strands_nobody(
    tick: float,
) -> None:
    async def story() -> None:
        readings = itertools.count(0.0, tick)
        room = WaitingRoom(10_000)
        book = Book()
        dispatcher = Dispatcher(book, room, Counts(), Wakes(), clock=lambda: next(readings))
        route = Route("dep_1", "default", "hello", Phase.READY, targets=(ENGINE,))
        book.take(RouteTable(1, [route]), Keyring())
        dispatcher.refusals.note(ENGINE.endpoint, 0.0)
        async with asyncio.timeout(5):
            sending = await dispatcher.place(Request("default", "hello", 10, arrived=0.0))
        assert sending.target == ENGINE
        assert room.held() == {}
        sending.flight.end()

    asyncio.run(story())
