"""What a downloader is told, and what its exit status tells. Apart from the downloader, so
that a worker needs none of the hub client's libraries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

DONE, FAILED, UNREADABLE, BUSY, ENDED = 0, 1, 2, 3, 143  # exit statuses


@dataclass(frozen=True, slots=True)
class Order:
    """What to fetch, from where, to where. `lock` is the number of an inherited file that
    holds the folder's lock already."""

    model: str
    revision: str | None
    endpoint: str
    cache: Path
    folder: Path
    lock: int | None = None

    def to_json(self) -> str:
        return json.dumps(
            {
                "model": self.model,
                "revision": self.revision,
                "endpoint": self.endpoint,
                "cache": str(self.cache),
                "folder": str(self.folder),
                "lock": self.lock,
            }
        )


def read_order(text: str) -> Order:
    """Raises ValueError, in a sentence, for anything but a complete order."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ValueError("The order is not JSON.") from e
    if not isinstance(found, dict):
        raise ValueError("The order is not a JSON object.")
    for key in ("model", "endpoint", "cache", "folder"):
        if not isinstance(found.get(key), str):
            raise ValueError(f"The order has no {key}.")
    revision, lock = found.get("revision"), found.get("lock")
    if not isinstance(revision, str | None) or not isinstance(lock, int | None):
        raise ValueError("The order has a revision or a lock of the wrong type.")
    return Order(
        found["model"],
        revision,
        found["endpoint"],
        Path(found["cache"]),
        Path(found["folder"]),
        lock,
    )
