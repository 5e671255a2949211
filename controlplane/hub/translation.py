"""What the hub client raised, told as one of our failures."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import httpx2
from huggingface_hub.errors import (
    DisabledRepoError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]

from controlplane.hub.failures import (
    BadWeights,
    DiskFull,
    DownloadFailed,
    GatedModel,
    HubFailure,
    HubRateLimited,
    HubUnreachable,
    ModelNotFound,
)

DEFAULT_WAIT = 60  # seconds, when a hub that limits us names none
LONGEST_WAIT = 3600
NOT_A_HUB = "What answers at the hub's address is not a hub."


class RateLimit(Exception):
    """Raised by our session at the first 429: the hub client would sleep it off unseen."""

    def __init__(self, wait: int) -> None:
        super().__init__(f"rate limited for {wait} s")
        self.wait = wait


def rate_limit(headers: httpx2.Headers, now: datetime) -> RateLimit:
    """What a 429 says about when to come back: `RateLimit` or `Retry-After`, else a minute."""
    told = parse_ratelimit_headers(headers)
    if told is not None and told.remaining == 0:
        wait = told.reset_in_seconds
    else:
        wait = _retry_after(headers.get("Retry-After", ""), now)
    return RateLimit(max(1, min(wait, LONGEST_WAIT)))


def _retry_after(value: str, now: datetime) -> int:
    if value.strip().isdecimal():
        return int(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return DEFAULT_WAIT
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return int((date - now).total_seconds())


def translate(
    error: BaseException, *, model: str, revision: str, with_token: bool, now: datetime
) -> HubFailure:
    """The failure that `error`, or what caused it, amounts to."""
    for cause in _causes(error):
        found = (
            _own(cause, model, now)
            or _refusal(cause, model, revision, with_token)
            or _transport(cause)
            or _disk(cause)
        )
        if found is not None:
            return found
    return DownloadFailed(
        f"Fetching {model} failed ({type(error).__name__}); the download's log has more."
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The innermost first: the hub client wraps what happened in what it did about it."""
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in chain:
        chain.append(following)
        following = following.__cause__ or following.__context__
    for link in reversed(chain):
        # An HTTP status error hides behind the hub client's own, which says more.
        if not isinstance(link, httpx2.HTTPStatusError):
            yield link


def _own(error: BaseException, model: str, now: datetime) -> HubFailure | None:
    if isinstance(error, HubFailure):
        return error
    if isinstance(error, RateLimit):
        at = now + timedelta(seconds=error.wait)
        return HubRateLimited(
            f"The hub limits requests and takes the next for {model} in {error.wait} s.",
            retry_at=at,
        )
    return None


def _refusal(
    error: BaseException, model: str, revision: str, with_token: bool
) -> HubFailure | None:
    if isinstance(error, GatedRepoError):
        why = "the token has no access to it yet" if with_token else "no token is set"
        return GatedModel(f"{model} is gated, and {why}.")
    if isinstance(error, RepositoryNotFoundError | HFValidationError):
        also = "this token" if with_token else "anybody without a token"
        return ModelNotFound(f"The hub has no model {model}, or none that {also} may see.")
    if isinstance(error, RevisionNotFoundError):
        return ModelNotFound(f"{model} has no revision {revision}.")
    if isinstance(error, DisabledRepoError):
        return ModelNotFound(f"The hub has disabled {model}.")
    if isinstance(error, RemoteEntryNotFoundError):
        return BadWeights(f"The hub lists a file of {model} that it does not have.")
    if isinstance(error, HfHubHTTPError):
        return _status(error.response.status_code, model)
    return None


def _status(status: int, model: str) -> HubFailure:
    if status in (401, 403):
        return GatedModel(f"The hub refused the token for {model} (HTTP {status}).")
    if status == 404:
        return ModelNotFound(f"The hub has no model {model}.")
    return HubUnreachable(f"The hub answered HTTP {status} for {model}.")


def _transport(error: BaseException) -> HubFailure | None:
    if isinstance(error, OfflineModeIsEnabled):
        return HubUnreachable("HF_HUB_OFFLINE is set, so the hub is not asked.")
    if isinstance(error, httpx2.TimeoutException):
        return HubUnreachable("The hub did not answer in time.")
    if isinstance(error, httpx2.ConnectError):
        return HubUnreachable("No connection to the hub could be made.")
    if isinstance(error, httpx2.TransportError):
        return HubUnreachable("The connection to the hub broke off again and again.")
    if isinstance(error, httpx2.HTTPError | FileMetadataError):
        return HubUnreachable(NOT_A_HUB)
    return None


def _disk(error: BaseException) -> HubFailure | None:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull("The disk filled up while the weights were written.")
    if isinstance(error, PermissionError):
        return DownloadFailed("A folder of the cache can't be written.")
    return None
