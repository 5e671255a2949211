"""A hub for tests: it speaks the Hugging Face hub's protocol to the real client, and fails as
it is told to.

Large files are redirected to a second server of another origin, as the real hub does, so that
a token sent there would be seen.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from tests.hub_server.repos import File, Repo

SLICE = 16_384


@dataclass
class Request:
    """One request as it came, and how many bytes of a file went out for it."""

    server: str  # hub | store
    method: str
    path: str
    token: str | None
    start: int = 0
    sent: int = 0


@dataclass
class Faults:
    """What goes wrong, until it is set back.

    `status`: every request to the hub gets it. `retry_after` goes with a 429; `rate_limit`
    with the hub's own RateLimit header. `store_status`: large files get it. `cut_after`: a
    large file's connection breaks after so many bytes of an answer. `hold_after`: it stands
    still there until `release`. `drip`: bytes a second. `ignore_range`: answers start at 0.
    `spoil`: large files come with a wrong byte. `announce`: the size that large files are said
    to have. `missing`: listed files that are not there.
    """

    status: int | None = None
    retry_after: str | None = None
    rate_limit: str | None = None
    store_status: int | None = None
    cut_after: int | None = None
    cuts: int = 10**9
    hold_after: int | None = None
    drip: int | None = None
    ignore_range: bool = False
    spoil: bool = False
    announce: int | None = None
    not_a_hub: bool = False
    missing: set[str] = field(default_factory=set)
    release: threading.Event = field(default_factory=threading.Event)


class HubServer:
    """`url` is a hub; `requests` is all that it was asked. Tokens in `tokens` are known, those
    in `accepted` may read gated models."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.faults = Faults()
        self.requests: list[Request] = []
        self.tokens: set[str] = set()
        self.accepted: set[str] = set()
        self._hub: ThreadingHTTPServer | None = None
        self._store = _serve(self, _StoreHandler, 0)
        self._port = 0
        self.up()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def store_url(self) -> str:
        return f"http://127.0.0.1:{self._store.server_address[1]}"

    def add(self, model: str, files: dict[str, bytes], *, gated: bool = False) -> str:
        """A model with these files on `main`; its commit."""
        repo = self.repos.setdefault(model, Repo(model))
        repo.gated = gated
        return repo.commit(files)

    def up(self) -> None:
        self._hub = _serve(self, _HubHandler, self._port)
        self._port = self._hub.server_address[1]

    def down(self) -> None:
        """Its port is closed from here on."""
        if self._hub is not None:
            self._hub.shutdown()
            self._hub.server_close()
            self._hub = None

    def close(self) -> None:
        self.faults.release.set()
        self.down()
        self._store.shutdown()
        self._store.server_close()

    def sent_bytes(self) -> int:
        """Of large files, all answers together."""
        return sum(r.sent for r in self.requests if r.server == "store")

    def find_blob(self, sha256: str) -> File | None:
        return next(
            (
                f
                for repo in self.repos.values()
                for files in repo.commits.values()
                for f in files.values()
                if f.is_lfs and f.sha256 == sha256
            ),
            None,
        )


@contextmanager
def hub_server() -> Iterator[HubServer]:
    server = HubServer()
    try:
        yield server
    finally:
        server.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    hub: HubServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed is part of the tests."""


def _serve(hub: HubServer, handler: type[BaseHTTPRequestHandler], port: int) -> ThreadingHTTPServer:
    server = _Server(("127.0.0.1", port), handler)
    server.hub = hub
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    name = ""

    @property
    def hub(self) -> HubServer:
        return self.server.hub

    def log_message(self, *_: object) -> None:
        """`requests` is the log."""

    def note(self) -> Request:
        given = self.headers.get("Authorization")
        token = given.removeprefix("Bearer ") if given else None
        request = Request(self.name, self.command, self.path, token)
        self.hub.requests.append(request)
        return request

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, code: str, message: str) -> None:
        body = json.dumps({"error": message}).encode()
        self.answer(
            status,
            body,
            X_Error_Code=code,
            X_Error_Message=message,
            Content_Type="application/json",
        )

    def answer_json(self, content: object) -> None:
        self.answer(200, json.dumps(content).encode(), Content_Type="application/json")


class _HubHandler(_Handler):
    name = "hub"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        request = self.note()
        faults = self.hub.faults
        if faults.not_a_hub:
            self.answer(200, b"<html>Sign in to this network</html>", Content_Type="text/html")
        elif faults.status is not None:
            extra = {"Retry_After": faults.retry_after} if faults.retry_after else {}
            extra |= {"RateLimit": faults.rate_limit} if faults.rate_limit else {}
            self.answer(faults.status, b"{}", **extra)
        elif request.token is not None and request.token not in self.hub.tokens:
            self.answer(401, b"{}", X_Error_Message="Invalid credentials in Authorization header")
        else:
            self._route(request)

    def _route(self, request: Request) -> None:
        url = urlsplit(self.path)
        parts = [unquote(p) for p in url.path.strip("/").split("/")]
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            self._api("/".join(parts[2:4]), parts[4:], parse_qs(url.query))
        elif len(parts) >= 5 and parts[2] == "resolve":
            self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]), request)
        else:
            self.answer(404, b"{}")

    def _found(self, model: str, revision: str) -> tuple[Repo, str] | None:
        repo = self.hub.repos.get(model)
        if repo is None:
            # As the real hub: nobody is told whether it is missing or private.
            self.refuse(401, "RepoNotFound", "Repository not found")
            return None
        commit = repo.resolve(revision)
        if commit is None:
            self.refuse(404, "RevisionNotFound", "Invalid rev id")
            return None
        return repo, commit

    def _api(self, model: str, rest: list[str], query: dict[str, list[str]]) -> None:
        kind, revision = rest if len(rest) == 2 else ("revision", "main")
        found = self._found(model, revision)
        if found is None:
            return
        repo, commit = found
        files = repo.commits[commit].values()
        if kind == "tree":
            self.answer_json([_tree_entry(f, self._size(f)) for f in files])
            return
        blobs = "blobs" in query
        self.answer_json(
            {
                "_id": "1",
                "id": model,
                "modelId": model,
                "sha": commit,
                "private": False,
                "gated": "manual" if repo.gated else False,
                "disabled": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
                "siblings": [_sibling(f, self._size(f), blobs=blobs) for f in files],
            }
        )

    def _size(self, file: File) -> int:
        announced = self.hub.faults.announce if file.is_lfs else None
        return len(file.content) if announced is None else announced

    def _resolve(self, model: str, revision: str, path: str, request: Request) -> None:
        found = self._found(model, revision)
        if found is None:
            return
        repo, commit = found
        if repo.gated and request.token not in self.hub.accepted:
            status = 401 if request.token is None else 403
            self.refuse(status, "GatedRepo", f"Access to model {model} is restricted")
            return
        file = repo.commits[commit].get(path)
        if file is None or path in self.hub.faults.missing:
            self.refuse(404, "EntryNotFound", "Entry not found")
        elif file.is_lfs:
            self.answer(
                302,
                Location=f"{self.hub.store_url}/{file.sha256}",
                X_Repo_Commit=commit,
                X_Linked_Size=str(len(file.content)),
                X_Linked_Etag=f'"{file.sha256}"',
            )
        else:
            self.answer(200, file.content, ETag=f'"{file.blob_id}"', X_Repo_Commit=commit)


class _StoreHandler(_Handler):
    name = "store"

    def do_GET(self) -> None:
        request = self.note()
        faults = self.hub.faults
        file = self.hub.find_blob(self.path.strip("/"))
        if file is None or faults.store_status is not None:
            self.answer(faults.store_status or 404)
            return
        content = file.content
        if faults.spoil:
            content = content[:-1] + bytes([content[-1] ^ 1])
        wanted = self.headers.get("Range")
        if wanted and not faults.ignore_range:
            request.start = int(wanted.removeprefix("bytes=").split("-")[0])
        self.send_response(206 if request.start else 200)
        if request.start:
            whole = len(content)
            self.send_header("Content-Range", f"bytes {request.start}-{whole - 1}/{whole}")
        self.send_header("ETag", f'"{file.sha256}"')
        self.send_header("Content-Length", str(len(content) - request.start))
        self.end_headers()
        self._send(content[request.start :], request)

    def _send(self, body: bytes, request: Request) -> None:
        faults = self.hub.faults
        cut = faults.cut_after if faults.cuts > 0 else None
        held = False
        while request.sent < len(body):
            end = min(request.sent + SLICE, len(body))
            if cut is not None and end > cut:
                end = cut
            if faults.hold_after is not None and not held and end > faults.hold_after:
                end = faults.hold_after
            self.wfile.write(body[request.sent : end])
            self.wfile.flush()
            if faults.drip:
                faults.release.wait((end - request.sent) / faults.drip)
            request.sent = end
            if cut is not None and end >= cut:
                faults.cuts -= 1
                self.close_connection = True
                return
            if end == faults.hold_after:
                held = True
                faults.release.wait()


def _sibling(file: File, size: int, *, blobs: bool) -> dict[str, object]:
    if not blobs:
        return {"rfilename": file.path}
    told: dict[str, object] = {"rfilename": file.path, "size": size, "blobId": file.blob_id}
    if file.is_lfs:
        told["lfs"] = {"sha256": file.sha256, "size": size, "pointerSize": 134}
    return told


def _tree_entry(file: File, size: int) -> dict[str, object]:
    told: dict[str, object] = {
        "type": "file",
        "path": file.path,
        "size": size,
        "oid": file.blob_id,
    }
    if file.is_lfs:
        told["lfs"] = {"oid": file.sha256, "size": size, "pointerSize": 134}
    return told
