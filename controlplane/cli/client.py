"""The REST API as the commands call it: every way that a call can end is a value or an AppError."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from controlplane.cli.address import Address, find
from controlplane.errors import AppError, FieldError, Invalid, Kind, Unavailable

if TYPE_CHECKING:
    import httpx2

API = "/api/v1"
CONNECT, READ = 5.0, 30.0  # seconds; the API answers in milliseconds, or something is wrong
QUIET = 45.0  # seconds without a byte on a stream that says something every ten
_LARGEST = 64 * 2**20
_PAGE = 100
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
# A person's own doing, however a gateway tells it to clients that may only try again.
_REFUSALS = {"deployment_paused", "deployment_failed"}
Object = dict[str, Any]


class Client:
    """Calls to one server. Paths are below /api/v1 unless they begin with `/v1`."""

    def __init__(self, address: Address | None = None, *, read: float = READ) -> None:
        import httpx2

        self.address = address or find()
        headers = {"Accept": "application/json", "User-Agent": "slipstream-cli"}
        if self.address.key:
            headers["Authorization"] = f"Bearer {self.address.key}"
        self._http = httpx2.Client(
            headers=headers,
            timeout=httpx2.Timeout(read, connect=min(CONNECT, read)),
            trust_env=not self.address.here,
            follow_redirects=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **params: Any) -> Object:
        """What is at `path`; parameters that are None are left out."""
        return self._call("GET", path, params=params)

    def post(self, path: str, body: Any = None) -> Object:
        """Sent once more where the connection broke: the key in its header lets the server do
        it only once."""
        return self._call("POST", path, body=body, headers={"Idempotency-Key": str(uuid.uuid4())})

    def patch(self, path: str, body: Any, *, generation: int) -> Object:
        return self._call("PATCH", path, body=body, headers={"If-Match": f'"{generation}"'})

    def delete(self, path: str) -> Object:
        return self._call("DELETE", path)

    def pages(self, path: str, **params: Any) -> Iterator[Object]:
        """Every item of a list, page by page."""
        cursor: Any = None
        while True:
            page = self.get(path, limit=_PAGE, cursor=cursor, **params)
            yield from items(page)
            following = page.get("next_cursor")
            if not following or following == cursor:
                return
            cursor = following

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        quiet: float | None = QUIET,
        **params: Any,
    ) -> Iterator[Iterator[tuple[str, str]]]:
        """Server-sent events of an answer, as pairs of name and data. `quiet` is how long the
        stream may say nothing; None: for ever."""
        import httpx2

        headers = {"Accept": "text/event-stream"}
        timeout = httpx2.Timeout(READ, connect=CONNECT, read=quiet)
        request = self._http.build_request(
            method,
            self._url(path),
            params=_given(params),
            headers=headers,
            json=body,
            timeout=timeout,
        )
        with self._faults():
            answer = self._http.send(request, stream=True)
            try:
                if not answer.is_success:
                    answer.read()
                    raise failure(answer.status_code, answer.content, self.address)
                yield _events(answer.iter_lines())
            finally:
                answer.close()

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Object:
        request = self._http.build_request(
            method,
            self._url(path),
            params=_given(params or {}),
            content=None if body is None else json.dumps(body),
            headers={**(headers or {}), "Content-Type": "application/json"},
        )
        with self._faults():
            answer = self._send(request)
        if not answer.is_success:
            raise failure(answer.status_code, answer.content, self.address)
        if answer.status_code == 204:
            return {}
        found = _object(answer.content)
        if found is None:
            raise not_slipstream(self.address, answer.status_code)
        return found

    def _send(self, request: httpx2.Request) -> httpx2.Response:
        """Once, or twice where it broke on the way and a second time does no harm."""
        import httpx2

        harmless = request.method in ("GET", "DELETE") or "Idempotency-Key" in request.headers
        for again in (harmless, False):
            try:
                return self._read(request)
            except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError):
                if not again:
                    raise
        raise AssertionError("the second time returns or raises")

    def _read(self, request: httpx2.Request) -> httpx2.Response:
        answer = self._http.send(request, stream=True)
        try:
            body = b""
            for part in answer.iter_bytes():
                body += part
                if len(body) > _LARGEST:
                    raise not_slipstream(self.address, answer.status_code)
        finally:
            answer.close()
        import httpx2

        return httpx2.Response(answer.status_code, content=body)

    def _url(self, path: str) -> str:
        return self.address.url + (path if path.startswith("/v1/") else API + path)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        import httpx2

        try:
            yield
        except httpx2.ConnectTimeout as e:
            raise self._unreachable() from e
        except httpx2.TimeoutException as e:
            raise Unavailable(
                "timed_out",
                f"The server at {self.address.url} took too long to answer.",
                hint="It may be busy: try again. slipstream doctor names what is down.",
            ) from e
        except httpx2.ConnectError as e:
            raise self._unreachable() from e
        except httpx2.DecodingError as e:
            raise not_slipstream(self.address, 200) from e
        except httpx2.TransportError as e:
            raise Unavailable(
                "connection_broken",
                f"The connection to {self.address.url} broke.",
                hint="Try again. slipstream doctor names what is down.",
            ) from e
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as e:
            raise not_slipstream(self.address, 0) from e

    def _unreachable(self) -> Unavailable:
        return Unavailable(
            "unreachable",
            f"No server answers at {self.address.url}.",
            hint=self.address.way_out,
        )


def at(ref: str, *more: str) -> str:
    """The path of a deployment, whatever a person gave for its name."""
    if not ref.strip():
        raise Invalid("usage", "A name is missing.")
    name = quote(ref, safe="")
    dots = name.strip(".") == ""  # a client would take `..` out of the path, and call another
    return "/".join(["/deployments", name.replace(".", "%2E") if dots else name, *more])


def items(page: Mapping[str, Any]) -> list[Object]:
    found = page.get("items")
    if not isinstance(found, list):
        raise not_slipstream(None, 200)
    return [i for i in found if isinstance(i, dict)]


def failure(status: int, content: bytes, address: Address) -> AppError:
    """The error that an answer states: a problem of ours, or an OpenAI error of `/v1`."""
    body = _object(content)
    kind = _KINDS.get(status, Kind.UNAVAILABLE)
    if body is None:
        return not_slipstream(address, status)
    inner = body.get("error")
    if isinstance(inner, dict):
        body = {"code": inner.get("code") or inner.get("type"), "detail": inner.get("message")}
    detail = body.get("detail")
    if not isinstance(detail, str) or not detail:
        return not_slipstream(address, status)
    if body.get("code") in _REFUSALS:
        kind = Kind.REFUSED
    hint = body.get("hint") if isinstance(body.get("hint"), str) else ""
    if kind is Kind.UNAUTHENTICATED:
        hint = _key_hint(address)
    return AppError(
        str(body.get("code") or "error"), detail, hint=hint or "", fields=_fields(body), kind=kind
    )


def not_slipstream(address: Address | None, status: int) -> Unavailable:
    where = f" at {address.url}" if address else ""
    told = f" (status {status})" if status else ""
    return Unavailable(
        "not_slipstream",
        f"What answers{where} is not Slipstream's API, or a broken one{told}.",
        hint="Check SLIPSTREAM_URL and SLIPSTREAM_PORT; slipstream doctor looks at this machine.",
    )


def _key_hint(address: Address) -> str:
    if address.key:
        return "The key is not in force there: check SLIPSTREAM_API_KEY."
    return "Set SLIPSTREAM_API_KEY to a key of that server."


def _fields(body: Mapping[str, Any]) -> tuple[FieldError, ...]:
    raw = body.get("errors")
    return tuple(
        FieldError(str(e.get("path", "")), str(e.get("code", "")), str(e.get("detail", "")))
        for e in (raw if isinstance(raw, list) else ())
        if isinstance(e, dict)
    )


def _given(params: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in params.items() if v not in (None, [], ())}


def _object(content: bytes) -> Object | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _events(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    name, data = "message", list[str]()
    for line in lines:
        if not line:
            if data:
                yield name, "\n".join(data)
            name, data = "message", []
        elif not line.startswith(":"):
            key, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if key == "data":
                data.append(value)
            elif key == "event":
                name = value
