"""Each way a fetch can end without weights has one reason, and a sentence of its own."""

from __future__ import annotations

import errno
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from controlplane.domain.reasons import EXPLANATIONS, Reason
from controlplane.hub.failures import HubFailure
from controlplane.hub.translation import RateLimit, rate_limit, translate

NOW = datetime(2026, 12, 1, 3, 0, tzinfo=UTC)


def answer(status: int) -> httpx2.Response:
    return httpx2.Response(status, request=httpx2.Request("GET", "http://hub/acme/tiny"))


def told(error: BaseException, *, with_token: bool = False) -> HubFailure:
    return translate(error, model="acme/tiny", revision="main", with_token=with_token, now=NOW)


def wrapped(inner: Exception) -> Exception:
    """As the hub client wraps what happened to it."""
    outer = LocalEntryNotFoundError("An error happened while trying to locate the file")
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (GatedRepoError("x", response=answer(403)), Reason.GATED_MODEL),
        (RepositoryNotFoundError("x", response=answer(401)), Reason.MODEL_NOT_FOUND),
        (HfHubHTTPError("x", response=answer(401)), Reason.GATED_MODEL),
        (HfHubHTTPError("x", response=answer(404)), Reason.MODEL_NOT_FOUND),
        (HfHubHTTPError("x", response=answer(500)), Reason.HUB_UNREACHABLE),
        (httpx2.ConnectError("x"), Reason.HUB_UNREACHABLE),
        (httpx2.ReadTimeout("x"), Reason.HUB_UNREACHABLE),
        (httpx2.RemoteProtocolError("x"), Reason.HUB_UNREACHABLE),
        (httpx2.TooManyRedirects("x"), Reason.HUB_UNREACHABLE),
        (OfflineModeIsEnabled("x"), Reason.HUB_UNREACHABLE),
        (RateLimit(30), Reason.HUB_RATE_LIMITED),
        (OSError(errno.ENOSPC, "No space left on device"), Reason.DISK_FULL),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), Reason.DISK_FULL),
        (PermissionError(errno.EACCES, "Permission denied"), Reason.DOWNLOAD_FAILED),
        (RuntimeError("x"), Reason.DOWNLOAD_FAILED),
    ],
)
def test_what_happened_is_recognised_bare_and_wrapped(error: Exception, reason: Reason) -> None:
    for seen in (told(error), told(wrapped(error))):
        assert seen.reason is reason
        assert seen.message.endswith(".")
        assert seen.hint == EXPLANATIONS[reason].hint


def test_a_rate_limit_says_when_to_come_back() -> None:
    assert told(RateLimit(30)).retry_at == NOW + timedelta(seconds=30)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "Tue, 01 Dec 2026 03:02:00 GMT"}, 120),
        ({"Retry-After": "Tue, 01 Dec 2020 03:02:00 GMT"}, 1),
        ({"Retry-After": "soon"}, 60),
        ({"Retry-After": "99999999"}, 3600),
        ({"Retry-After": "0"}, 1),
        ({}, 60),
        ({"RateLimit": '"api";r=0;t=55', "Retry-After": "7"}, 55),
        ({"RateLimit": '"api";r=3;t=55', "Retry-After": "7"}, 7),
    ],
)
def test_a_429_is_read_in_each_form_that_hubs_use(headers: dict[str, str], wait: int) -> None:
    assert rate_limit(httpx2.Headers(headers), NOW).wait == wait


def test_the_code_is_the_reason_in_a_programs_spelling() -> None:
    assert told(RateLimit(1)).code == "hub_rate_limited"
    assert told(httpx2.ConnectError("x")).code == "hub_unreachable"


def test_a_servers_own_words_are_not_repeated() -> None:
    error = HfHubHTTPError("<script>", response=answer(500), server_message="\x1b[31m")
    assert told(error).message == "The hub answered HTTP 500 for acme/tiny."
