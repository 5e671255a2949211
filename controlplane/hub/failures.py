"""Why weights could not be fetched: a closed set, each with the reason that a deployment shows.

Sentences hold names that were checked against their grammar, never a server's own words.
"""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from controlplane.domain.reasons import EXPLANATIONS, Reason
from controlplane.errors import AppError, Kind


class HubFailure(AppError):
    """A fetch that ended without weights. `retry_at` is when the hub takes requests again,
    where it said so."""

    reason: ClassVar[Reason] = Reason.DOWNLOAD_FAILED

    def __init__(self, message: str, *, retry_at: datetime | None = None) -> None:
        code = "".join(f"_{c.lower()}" if c.isupper() else c for c in self.reason).lstrip("_")
        super().__init__(code, message, hint=EXPLANATIONS[self.reason].hint)
        self.retry_at = retry_at


class DownloadFailed(HubFailure):
    reason = Reason.DOWNLOAD_FAILED


class GatedModel(HubFailure):
    reason = Reason.GATED_MODEL
    kind = Kind.FORBIDDEN


class ModelNotFound(HubFailure):
    reason = Reason.MODEL_NOT_FOUND
    kind = Kind.NOT_FOUND


class HubRateLimited(HubFailure):
    reason = Reason.HUB_RATE_LIMITED
    kind = Kind.UNAVAILABLE


class HubUnreachable(HubFailure):
    reason = Reason.HUB_UNREACHABLE
    kind = Kind.UNAVAILABLE


class DiskFull(HubFailure):
    reason = Reason.DISK_FULL


class BadWeights(HubFailure):
    reason = Reason.BAD_WEIGHTS
