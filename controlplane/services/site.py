"""One running installation, as use cases see it: its settings, its database, the hints that
it sends and the devices that it found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, sessionmaker

from controlplane.domain.tiers import Device
from controlplane.errors import Unavailable
from controlplane.persistence.session import make_engine, make_sessions
from controlplane.settings import Settings


class HintSink(Protocol):
    """Takes hints after the commit. Never raises: a hint may be lost."""

    def reconcile(self, deployment_id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Site:
    """`find_devices` tells what this machine has, or None where a scheduler elsewhere decides
    what there is."""

    settings: Settings
    engine: Engine
    sessions: sessionmaker[Session]
    hints: HintSink
    find_devices: Callable[[], tuple[Device, ...]] | None

    @contextmanager
    def begin(self) -> Iterator[Session]:
        """One transaction: committed when the block ends, rolled back when it raises.

        Raises Unavailable when the database does not answer, or not in time.
        """
        try:
            with self.sessions.begin() as session:
                yield session
        except (OperationalError, InterfaceError, PoolTimeout) as e:
            raise database_unavailable() from e
        except DBAPIError as e:
            if e.connection_invalidated:
                raise database_unavailable() from e
            raise


def open_site(
    settings: Settings,
    hints: HintSink,
    find_devices: Callable[[], tuple[Device, ...]] | None,
    application: str = "api",
) -> Site:
    """A site whose connections are made at first use. Raises Unavailable without a database."""
    engine = make_engine(settings, application)
    return Site(settings, engine, make_sessions(engine), hints, find_devices)


def database_unavailable() -> Unavailable:
    return Unavailable(
        "database_unavailable",
        "The database does not answer at the moment.",
        hint="Nothing was changed. Try again soon; slipstream doctor names what is down.",
    )
