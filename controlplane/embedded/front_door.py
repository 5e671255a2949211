"""Asking the front door, in a few lines: the supervisor stays small, so no HTTP library."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any

_LARGEST = 1_048_576


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes

    @property
    def object(self) -> dict[str, Any]:
        """The body, where it is a JSON object; else an empty one."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def ask(
    host: str, port: int, method: str, path: str, *, key: str | None = None, timeout: float = 5.0
) -> Answer | None:
    """One request without a body; None when there is no usable answer in time."""
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {url_host(reachable(host))}:{port}",
        "Connection: close",
        "Accept: application/json",
        "Content-Length: 0",
        *([f"Authorization: Bearer {key}"] if key else []),
    ]
    data = b""
    try:
        with socket.create_connection((reachable(host), port), timeout) as s:
            s.settimeout(timeout)
            s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
            while len(data) < _LARGEST and (more := s.recv(65_536)):
                data += more
    except (OSError, UnicodeEncodeError):
        return None
    return _parse(data)


def ready(host: str, port: int) -> bool:
    """True when the front door says that it, and the api behind it, can serve."""
    answer = ask(host, port, "GET", "/readyz", timeout=2.0)
    return answer is not None and answer.status == 200


def sign_in_path(host: str, port: int, key: str) -> str | None:
    """A fresh single-use link, without the origin; None when none could be had."""
    answer = ask(host, port, "POST", "/api/v1/sign-in-links", key=key)
    found = answer.object if answer is not None and answer.status == 201 else {}
    _, path, token = str(found.get("url", "")).partition("/sign-in?token=")
    return path + token if token else None


def reachable(host: str) -> str:
    """Where a server that listens on `host` is reached from this machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104


def url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _parse(data: bytes) -> Answer | None:
    head, end, body = data.partition(b"\r\n\r\n")
    first, *fields = head.split(b"\r\n")
    words = first.split()
    if not end or len(words) < 2 or not words[1].isdigit():
        return None
    chunked = any(
        f.lower().startswith(b"transfer-encoding:") and b"chunked" in f.lower() for f in fields
    )
    return Answer(int(words[1]), _joined(body) if chunked else body)


def _joined(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        try:
            count = int(size.split(b";")[0], 16)
        except ValueError:
            break
        whole, body = whole + body[:count], body[count + 2 :]
        if count == 0:
            break
    return whole
