from __future__ import annotations

from controlplane.auth.keys import make_key
from controlplane.auth.principals import Principal, Role
from controlplane.domain.deployment import Wake, WakeMode
from controlplane.gateway.keyring import Keyring, KnownKey, bearer
from controlplane.gateway.loader import read_wake, to_keyring
from controlplane.persistence.routes import KeyFacts

KEY, OTHER = make_key(), make_key()
WHO = Principal("default", "key_1", "ci", Role.MEMBER)


def test_a_key_is_proved_by_its_digest_and_ends_at_its_time() -> None:
    ring = Keyring([KnownKey(KEY.lookup, KEY.digest, WHO, expires_at=10.0)])
    assert ring.who(KEY.text, 9.9) == WHO
    assert ring.who(KEY.text, 10.0) is None
    assert ring.who(OTHER.text, 0.0) is None
    assert Keyring([KnownKey(KEY.lookup, OTHER.digest, WHO)]).who(KEY.text, 0.0) is None


def test_what_can_be_no_key_is_nobodys() -> None:
    ring = Keyring([KnownKey(KEY.lookup, KEY.digest, WHO)])
    for text in ("", " ", "x" * 10_000, KEY.text[:-1], KEY.text + "\n", "sl_é"):
        assert ring.who(text, 0.0) is None


def test_a_role_that_is_not_known_here_may_do_nothing() -> None:
    facts = KeyFacts("key_1", "default", "ci", "emperor", KEY.lookup, KEY.digest, None)
    assert to_keyring([facts], 0.0).who(KEY.text, 0.0) is None
    member = facts._replace(role="member", expires_in=5.0)
    assert to_keyring([member], 100.0).who(KEY.text, 104.0) == WHO
    assert to_keyring([member], 100.0).who(KEY.text, 105.0) is None


def test_only_a_bearer_header_carries_a_key() -> None:
    assert bearer(b"Bearer abc") == bearer(b"bearer  abc ") == "abc"
    assert bearer(b"Basic abc") == bearer(b"abc") == bearer(b"") == bearer(None) == ""


def test_a_wake_rule_that_cannot_be_read_is_the_default_and_stops_no_other_route() -> None:
    assert read_wake(None) == read_wake([]) == read_wake({"mode": 5, "deadline": []}) == Wake()
    read = read_wake({"mode": "reject", "deadline": "90s", "max_waiting": 3})
    assert (read.mode, read.deadline.total_seconds(), read.max_waiting) == (WakeMode.REJECT, 90, 3)
