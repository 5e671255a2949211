"""Durations as people write them."""

from datetime import timedelta

import pytest

from controlplane.domain.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("90s", 90), ("15m", 900), ("1h", 3600), ("1d", 86400), ("30d", 2_592_000)],
)
def test_a_number_and_a_unit_are_a_span(text: str, seconds: int) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    ["", "0s", "0d", "-1h", "1.5h", "1 h", " 1h", "1h\n", "h", "60", "1H", "1w", "31d", "1e3s",
     "999999999d", "9" * 400 + "s", "١h", "1h30m"],
)  # fmt: skip
def test_zero_negative_enormous_and_malformed_spans_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^A duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["31d", "999999999d", "99999999999999h", "9" * 30 + "s"])
def test_a_span_that_is_too_long_is_told_the_limit(text: str) -> None:
    with pytest.raises(ValueError, match="30 days at most"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["1s", "61s", "90m", "1h", "25h", "1d", "30d"])
def test_the_shortest_exact_form_reads_back_unchanged(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


def test_sixty_minutes_are_written_as_an_hour() -> None:
    assert format_duration(timedelta(seconds=3600)) == "1h"
