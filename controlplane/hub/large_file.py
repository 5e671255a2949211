"""One large file, fetched so that nothing of it is fetched twice.

The hub client keeps no part of a file that it did not finish, and a shard has gigabytes. So
large files come through here: bytes are appended to a part file that outlives this process,
a later process goes on where it ends, and the whole is checked against its SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import BinaryIO

import httpx2
from huggingface_hub import get_session, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    hf_raise_for_status,
)

from controlplane.hub.failures import BadWeights
from controlplane.hub.progress import PART
from controlplane.telemetry import logger

ATTEMPTS = 5  # in a row without a byte; any byte starts the count anew
LONGEST_PAUSE = 8.0  # seconds between attempts
_CHUNK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_log = logger(__name__)


class Stopped(Exception):
    """Another file failed, so this one was left where it was."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a file of a model comes from."""

    endpoint: str
    token: str | None
    model: str
    commit: str


def part_of(blobs: Path, sha256: str) -> Path:
    return blobs / f"{sha256}{PART}"


def fetch(source: Source, path: str, size: int, sha256: str, blobs: Path, stop: Event) -> None:
    """Bring the file `path` to `blobs/SHA256`. Raises BadWeights when what the hub sends is,
    twice, not what it lists; else what the hub client raises."""
    if not _SHA256.fullmatch(sha256):
        raise BadWeights("The hub lists a file without a proper checksum.")
    part = part_of(blobs, sha256)
    for _ in range(2):
        with part.open("ab+") as file:
            digest = _fill(source, path, size, file, stop)
        if digest == sha256:
            os.replace(part, blobs / sha256)
            return
        # Bytes of an earlier life may be spoilt (a power cut): once more, from the start.
        _log.warning("checksum_differs", file=path)
        part.unlink()
    raise BadWeights(f"A file of {source.model} is not what the hub's checksum says.")


def _fill(source: Source, path: str, size: int, file: BinaryIO, stop: Event) -> str:
    """Append until the file has `size` bytes; its SHA-256."""
    if file.seek(0, os.SEEK_END) > size:
        file.truncate(0)
    idle = 0
    while (had := file.seek(0, os.SEEK_END)) < size:
        try:
            _append(source, path, had, file, stop)
            failure: Exception | None = None
        except (httpx2.TransportError, HfHubHTTPError) as e:
            if not _passes(e):
                raise
            failure = e
        file.flush()
        idle = 0 if file.tell() > had else idle + 1
        if failure is not None:
            _log.warning("broke_off", file=path, at=file.tell(), why=type(failure).__name__)
            if idle >= ATTEMPTS:
                raise failure
        elif idle >= ATTEMPTS:
            raise BadWeights(f"The hub sends less of a file of {source.model} than it lists.")
        stop.wait(min(LONGEST_PAUSE, 2.0**idle) if idle else 0)
    file.flush()
    return _sha256(file)


def _passes(error: Exception) -> bool:
    """True for what may well be over at the next attempt."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code >= 500 or error.response.status_code == 408
    return not isinstance(error, httpx2.ProxyError)


def _append(source: Source, path: str, had: int, file: BinaryIO, stop: Event) -> None:
    url = hf_hub_url(source.model, path, revision=source.commit, endpoint=source.endpoint)
    headers = build_hf_headers(token=source.token or False)
    headers["Accept-Encoding"] = "identity"
    if had:
        headers["Range"] = f"bytes={had}-"
    with get_session().stream("GET", url, headers=headers) as response:
        hf_raise_for_status(response)
        if had and response.status_code != httpx2.codes.PARTIAL_CONTENT:
            file.truncate(0)
        for chunk in response.iter_bytes(_CHUNK):
            if stop.is_set():
                raise Stopped
            file.write(chunk)


def _sha256(file: BinaryIO) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
