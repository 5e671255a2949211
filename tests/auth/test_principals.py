from __future__ import annotations

import pytest

from controlplane.auth.principals import Action, Principal, Role, may
from controlplane.errors import Forbidden


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (Role.VIEWER, {Action.READ, Action.PLAN}),
        (Role.MEMBER, {Action.READ, Action.PLAN, Action.DEPLOY, Action.INFER}),
        (Role.ADMIN, set(Action)),
    ],
)
def test_each_role_may_do_exactly_this(role: Role, allowed: set[Action]) -> None:
    assert {a for a in Action if may(role, a)} == allowed


def test_who_may_not_is_refused_with_a_way_out() -> None:
    viewer = Principal("default", "key_1", "screen", Role.VIEWER)
    viewer.require(Action.READ)
    with pytest.raises(Forbidden) as refused:
        viewer.require(Action.DEPLOY)
    assert refused.value.hint
