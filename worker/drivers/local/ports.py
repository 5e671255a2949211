"""A port of this machine's own loopback for each replica."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from controlplane.paths import DataDir
from worker.drivers.base import Unreachable
from worker.drivers.local.records import owned_deployments, replica_folders

# Below what the system gives to outgoing connections, so that none of those takes one.
FIRST, COUNT = 20_000, 10_000
TRIES = 200


def ports_on_record(data: DataDir) -> frozenset[int]:
    """Every port that some replica's record names, whether it runs or not."""
    return frozenset(
        order.port
        for deployment_id in owned_deployments(data)
        for folder in replica_folders(data, deployment_id)
        if (order := folder.order()) is not None
    )


def choose_port(used: Collection[int]) -> int:
    """A port that nobody listens on and that is not in `used`. Call it, and write it down,
    under `port_table`. Another program can still take it before the engine does: the engine
    then says so, and the next start gets another one."""
    for _ in range(TRIES):
        port = FIRST + random.randrange(COUNT)  # noqa: S311
        if port not in used and _free(port):
            return port
    raise Unreachable("no free port was found")


def _free(port: int) -> bool:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
