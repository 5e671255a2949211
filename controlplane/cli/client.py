"""The REST API, as the commands use it: where it is, with which key, and what its answers
mean."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from controlplane.errors import AppError, FieldError, Kind, Unavailable
from controlplane.settings import load_client, load_settings

if TYPE_CHECKING:
    import httpx2

TIMEOUT = 15.0  # seconds, to connect and between two bytes of an answer
_KINDS = {
    400: Kind.MALFORMED,
    401: Kind.UNAUTHENTICATED,
    403: Kind.FORBIDDEN,
    404: Kind.NOT_FOUND,
    409: Kind.CONFLICT,
    412: Kind.STALE,
    413: Kind.TOO_LARGE,
    422: Kind.INVALID,
}


class Client:
    """One server. Every call raises AppError: Unavailable when nobody answers there, or the
    server's own problem with its code, sentence and hint."""

    def __init__(self, url: str, key: str | None, timeout: float = TIMEOUT) -> None:
        import httpx2

        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.url = url.rstrip("/")
        try:
            self._http = httpx2.Client(base_url=self.url, headers=headers, timeout=timeout)
        except (httpx2.InvalidURL, ValueError) as e:
            raise AppError(
                "invalid_url",
                "The server's address is no URL.",
                hint="Set SLIPSTREAM_URL as http://127.0.0.1:8400.",
                kind=Kind.INVALID,
            ) from e

    def get(self, path: str, **query: Any) -> Any:
        """The JSON at `path` below /api/v1; queries that are None are left out."""
        return self._json("GET", path, params={k: v for k, v in query.items() if v is not None})

    def post(self, path: str, body: Any = None, *, once: bool = False) -> Any:
        """`once`: a repeated send of this call creates nothing twice."""
        headers = {"Idempotency-Key": uuid.uuid4().hex} if once else {}
        return self._json("POST", path, json=body, headers=headers)

    def patch(self, path: str, body: Any, *, generation: int | None = None) -> Any:
        headers = {} if generation is None else {"If-Match": f'"{generation}"'}
        return self._json("PATCH", path, json=body, headers=headers)

    def delete(self, path: str) -> Any:
        return self._json("DELETE", path)

    def _json(self, method: str, path: str, **how: Any) -> Any:
        with self._told():
            answer = self._http.request(method, f"/api/v1{path}", **how)
        if answer.is_error:
            raise problem(answer.status_code, answer.content)
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError as e:
            raise self._strange(answer.status_code) from e

    @contextmanager
    def stream(
        self, method: str, path: str, *, timeout: float | None = None, **how: Any
    ) -> Iterator[httpx2.Response]:
        """An answer that is read as it comes, from the root (`/api/v1/...`, `/v1/...`).
        `timeout` None: as long as it takes."""
        with (
            self._told(),
            self._http.stream(method, path, timeout=timeout, **how) as answer,
        ):
            if answer.is_error:
                raise problem(answer.status_code, answer.read())
            yield answer

    @contextmanager
    def _told(self) -> Iterator[None]:
        import httpx2

        try:
            yield
        except httpx2.TimeoutException as e:
            raise Unavailable(
                "timeout", f"{self.url} did not answer in time.", hint="Look: slipstream doctor."
            ) from e
        except (httpx2.TransportError, httpx2.DecodingError) as e:
            raise Unavailable(
                "unreachable",
                f"Nothing answers at {self.url}.",
                hint="Start it: slipstream up. Elsewhere: set SLIPSTREAM_URL.",
            ) from e
        except (httpx2.InvalidURL, UnicodeEncodeError) as e:
            raise AppError(
                "invalid_url",
                "The server's address or key is malformed.",
                hint="Check SLIPSTREAM_URL and SLIPSTREAM_API_KEY.",
                kind=Kind.INVALID,
            ) from e

    def _strange(self, status: int) -> Unavailable:
        return Unavailable(
            "strange_answer",
            f"{self.url} answered {status} with something else than JSON.",
            hint="Is it Slipstream? Check SLIPSTREAM_URL.",
        )


def connect(timeout: float = TIMEOUT) -> Client:
    """The server of SLIPSTREAM_URL, or the one that runs on this machine."""
    given = load_client()
    if given.url is not None:
        return Client(given.url, given.api_key, timeout)
    from controlplane.embedded.console import origin
    from controlplane.embedded.state import RunFolder
    from controlplane.paths import DataDir

    settings = load_settings()
    running = RunFolder(settings.data_dir).read()
    url = f"http://{_at(running.host)}:{running.port}" if running else origin(settings)
    key = given.api_key
    if key is None:
        try:
            key = DataDir(settings.data_dir).admin_key.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            key = settings.admin_key
    return Client(url, key, timeout)


def _at(host: str) -> str:
    from controlplane.embedded.front_door import reachable, url_host

    return url_host(reachable(host))


def problem(status: int, body: bytes) -> AppError:
    """The error that an answer of `status` states: a problem of ours, OpenAI's error object,
    or, where it is neither, what the status alone says."""
    kind = _KINDS.get(status, Kind.UNAVAILABLE)
    try:
        raw = json.loads(body)
    except ValueError:
        raw = None
    if isinstance(raw, Mapping) and isinstance(raw.get("error"), Mapping):
        error = raw["error"]
        return AppError(
            str(error.get("code") or status), str(error.get("message") or ""), kind=kind
        )
    if not isinstance(raw, Mapping) or not raw.get("detail"):
        return Unavailable(
            "strange_answer",
            f"The server answered {status} without saying why.",
            hint="Look: slipstream doctor.",
        )
    fields = raw.get("errors")
    return AppError(
        str(raw.get("code", status)),
        str(raw["detail"]),
        hint=str(raw.get("hint") or ""),
        kind=kind,
        fields=tuple(
            FieldError(str(f.get("path", "")), str(f.get("code", "")), str(f.get("detail", "")))
            for f in (fields if isinstance(fields, list) else [])
            if isinstance(f, Mapping)
        ),
    )
