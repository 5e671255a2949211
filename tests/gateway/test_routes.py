from __future__ import annotations

from dataclasses import replace

from controlplane.domain.phases import Phase
from controlplane.gateway.book import Book
from controlplane.gateway.keyring import Keyring
from controlplane.gateway.routes import Route, RouteTable, Target, choose

A, B, C = (Target(f"{n}-abc", f"http://engine-{n}") for n in range(3))


def test_the_replica_with_the_least_in_flight_is_chosen() -> None:
    load = {A: 3, B: 1, C: 2}
    assert choose((A, B, C), load.__getitem__) is B


def test_ties_are_broken_by_chance_among_the_least_loaded_only() -> None:
    seen: list[list[Target]] = []

    def pick(among: object) -> Target:
        assert isinstance(among, list)
        seen.append(among)
        return among[-1]

    assert choose((A, B, C), lambda t: 5 if t is B else 0, pick=pick) is C
    assert seen == [[A, C]]


def test_a_replica_that_is_left_out_is_not_chosen_even_alone() -> None:
    assert choose((A, B), lambda t: 0, {A.key}) is B
    assert choose((A,), lambda t: 0, {A.key}) is None
    assert choose((), lambda t: 0) is None


def test_names_belong_to_their_workspace_and_going_ones_are_not_there() -> None:
    table = RouteTable(
        7,
        [
            Route("d1", "one", "hello", Phase.ASLEEP),
            Route("d2", "two", "hello", Phase.READY),
            Route("d3", "one", "going", Phase.STOPPING),
        ],
    )
    found = table.find("one", "hello")
    assert found is not None
    assert found.id == "d1"
    assert table.find("one", "going") is None
    assert table.find("three", "hello") is None
    assert [r.id for r in table.listed("one")] == ["d1"]
    assert table.near("one", "helo") == ["hello"]
    assert table.near("three", "helo") == []
    assert table.near("one", "HELLO" * 10_000) == []


def test_a_route_never_shows_its_engines_key() -> None:
    assert "hidden" not in repr(Route("d1", "one", "a", Phase.READY, engine_key="hidden"))


def test_a_new_table_tells_what_differs_and_a_lost_database_takes_back_the_epoch() -> None:
    told: list[set[str]] = []
    book = Book()
    book.changed = told.append
    assert (book.shown_epoch, book.loaded) == (0, False)
    one = Route("d1", "default", "a", Phase.ASLEEP)
    two = Route("d2", "default", "b", Phase.ASLEEP)
    book.take(RouteTable(3, [one, two]), Keyring())
    assert book.shown_epoch == 3
    book.lost()
    assert (book.shown_epoch, book.loaded, book.table.epoch) == (0, True, 3)
    book.take(RouteTable(4, [replace(one, targets=(A,)), two]), Keyring())
    assert book.shown_epoch == 4
    book.take(RouteTable(5, [two]), Keyring())
    assert told == [{"d1", "d2"}, {"d1"}, {"d1"}]
