"""Derived names: short enough, and never the same for two different things."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.naming import content_hash, is_name, slug, ulid, weights_key

NAMES = st.text(string.printable + "äß中", max_size=120)


@pytest.mark.parametrize(
    "name", ["ab", "qwen-vl", "7b-v0.1", "true", "on", "no", "0777", "1e3", "null", "a" * 40]
)
def test_words_that_other_formats_read_as_values_are_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "a", "A", "aB", "-ab", "ab-", "a b", "ab\n", "a/b", "a" * 41, "äb", "a\x00b", ".ab"],
)
def test_names_outside_the_grammar_are_none(name: str) -> None:
    assert not is_name(name)


@given(NAMES)
def test_a_slug_is_a_dns_label_of_bounded_length(text: str) -> None:
    made = slug(text)
    assert len(made) <= 40
    assert set(made) <= set(string.ascii_lowercase + string.digits + "-")
    assert made.strip("-") == made
    assert made


@given(NAMES, NAMES)
def test_two_texts_never_share_a_slug(one: str, other: str) -> None:
    assert one == other or slug(one) != slug(other)


def test_long_names_that_begin_alike_stay_apart() -> None:
    assert slug("a" * 50 + "1") != slug("a" * 50 + "2")
    assert weights_key("org/model", "v1") != weights_key("org/model", "v2")


def test_ids_sort_by_time() -> None:
    early, late = ulid(1_000, b"\xff" * 10), ulid(1_001, b"\x00" * 10)
    assert early < late
    assert len(early) == 26
    assert ulid(0, b"\x00" * 10) == "0" * 26


def test_a_content_hash_ignores_the_order_of_keys_and_nothing_else() -> None:
    assert content_hash({"a": 1, "b": 2}) == content_hash({"b": 2, "a": 1})
    assert content_hash({"a": 1}) != content_hash({"a": 2})
