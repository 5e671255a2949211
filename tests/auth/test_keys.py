from __future__ import annotations

import pytest

from controlplane.auth.keys import (
    chosen_key,
    digest_of,
    is_presentable,
    lookup_of,
    make_key,
    verify,
)
from controlplane.errors import Invalid


def test_a_made_key_is_found_by_its_lookup_and_proved_by_its_digest() -> None:
    key = make_key()
    assert key.text.startswith("sl_")
    assert lookup_of(key.text) == key.lookup
    assert len(key.lookup) <= 16
    assert verify(key.text, key.digest)
    assert is_presentable(key.text)


def test_no_two_keys_are_alike() -> None:
    keys = [make_key() for _ in range(200)]
    assert len({k.text for k in keys}) == len({k.lookup for k in keys}) == 200


def test_a_key_never_shows_in_its_own_representation() -> None:
    key = make_key()
    assert key.text not in repr(key)
    assert key.digest not in repr(key)


def test_a_torn_or_mistyped_key_is_told_without_a_look_up() -> None:
    text = make_key().text
    other = "A" if text[20] != "A" else "B"
    assert not is_presentable(text[:20] + other + text[21:])


@pytest.mark.parametrize(
    "text", ["", "a b", "x" * 257, "new\nline-in-it", "ключ-ключ-ключ", "\x00" * 20]
)
def test_what_can_not_be_a_key_is_not_looked_up(text: str) -> None:
    assert not is_presentable(text)


def test_another_key_of_the_same_lookup_is_not_proved() -> None:
    key = make_key()
    assert not verify(key.text[:-1] + ("0" if key.text[-1] != "0" else "1"), key.digest)


def test_an_operators_own_key_works_whatever_its_form() -> None:
    key = chosen_key("my-own-admin-key")
    assert key.lookup == lookup_of("my-own-admin-key")
    assert len(key.lookup) <= 16
    assert key.lookup not in key.digest
    assert key.digest == digest_of("my-own-admin-key")


@pytest.mark.parametrize(
    "text", ["changeme", "admin", "with a space in it", "tab\tinside-of-it", ""]
)
def test_a_weak_or_unsendable_chosen_key_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        chosen_key(text)
    assert refused.value.code == "weak_key"
    assert not text or text not in str(refused.value)
