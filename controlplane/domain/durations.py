"""Durations as people write them: `90s`, `15m`, `1h`, `1d`."""

from __future__ import annotations

import re
from datetime import timedelta

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LONGEST = timedelta(days=30)
_FORM = re.compile(r"([0-9]{1,30})([smhd])")


def parse_duration(text: str) -> timedelta:
    """The span that `text` names. Raises ValueError, with a sentence for people, when the
    form is another, or the span is zero or longer than 30 days."""
    found = _FORM.fullmatch(text)
    if not found:
        raise ValueError("A duration is a whole number and a unit: 90s, 15m, 1h or 1d.")
    seconds = int(found[1]) * UNITS[found[2]]
    if not seconds:
        raise ValueError("A duration must be longer than zero.")
    if seconds > LONGEST.total_seconds():
        raise ValueError("A duration is 30 days at most.")
    return timedelta(seconds=seconds)


def format_duration(span: timedelta) -> str:
    """The shortest exact form: 3600 seconds are `1h`, 5400 seconds are `90m`."""
    seconds = int(span.total_seconds())
    for unit in ("d", "h", "m"):
        if seconds and seconds % UNITS[unit] == 0:
            return f"{seconds // UNITS[unit]}{unit}"
    return f"{seconds}s"
