"""Asking an engine: is it well, does it serve the name, how much is it doing."""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass

TIMEOUT = 1.0  # s an answer; a healthy engine takes milliseconds, also under load
LARGEST = 4_000_000  # bytes that are read of an answer


@dataclass(frozen=True, slots=True)
class Answer:
    """`well`: health is good. `serves`: the name is listed too. The counts are the engine's
    own; None: not told."""

    well: bool = False
    serves: bool = False
    running: int | None = None
    waiting: int | None = None


def ask(port: int, name: str, key: str, timeout: float = TIMEOUT) -> Answer:
    """One look at the engine on this port of the loopback. Never raises for what it does."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        if _get(connection, "/health", "")[0] != 200:
            return Answer()
        status, body = _get(connection, "/v1/models", key)
        if status != 200 or name not in _names(body):
            return Answer(well=True)
        status, body = _get(connection, "/metrics", "")
        text = body.decode("utf-8", "replace") if status == 200 else ""
        return Answer(True, True, _count(text, "running"), _count(text, "waiting"))
    except (OSError, http.client.HTTPException):
        return Answer()
    finally:
        connection.close()


def well(port: int, timeout: float = TIMEOUT) -> bool:
    """The cheap half: health alone."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        return _get(connection, "/health", "")[0] == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _get(connection: http.client.HTTPConnection, path: str, key: str) -> tuple[int, bytes]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read(LARGEST)
    if not response.isclosed():
        raise http.client.HTTPException("the answer is too large")
    return response.status, body


def _names(body: bytes) -> set[str]:
    try:
        return {str(card["id"]) for card in json.loads(body)["data"]}
    except (ValueError, KeyError, TypeError):
        return set()


def _count(metrics: str, what: str) -> int | None:
    """The sum over the engine's parts; both spellings that engines have used."""
    pattern = rf"^vllm[:_]num_requests_{what}(?:\{{[^\n]*\}})? ([0-9.eE+]+)\s*$"
    found = re.findall(pattern, metrics, re.MULTILINE)
    try:
        return round(sum(map(float, found))) if found else None
    except ValueError:
        return None
