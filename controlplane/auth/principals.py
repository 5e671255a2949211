"""Who is calling, and the one table of what each role may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from controlplane.errors import Forbidden


class Role(StrEnum):
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


class Action(StrEnum):
    """What a call does, as roles are given it."""

    READ = "read"  # deployments, events, logs, tiers, models, health
    PLAN = "plan"  # asks what a spec would be; creates nothing
    DEPLOY = "deploy"  # create, change, pause, resume, sleep, wake, delete
    INFER = "infer"  # /v1
    MANAGE_KEYS = "manage_keys"
    MANAGE_MODELS = "manage_models"  # folders of the server become models
    SIGN_IN_OTHERS = "sign_in_others"  # make sign-in links


_VIEWER = frozenset({Action.READ, Action.PLAN})
_MEMBER = _VIEWER | {Action.DEPLOY, Action.INFER}
MAY: Mapping[Role, frozenset[Action]] = MappingProxyType(
    {Role.VIEWER: _VIEWER, Role.MEMBER: _MEMBER, Role.ADMIN: frozenset(Action)}
)


def may(role: Role, action: Action) -> bool:
    """True when `role` is allowed `action`."""
    return action in MAY[role]


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever a request comes from: a key, and through it a workspace and a role."""

    workspace: str
    key_id: str
    key_name: str
    role: Role

    @property
    def actor(self) -> str:
        """How events name this caller: never with anything secret."""
        return f"key:{self.key_name}"

    def require(self, action: Action) -> None:
        """Raises Forbidden when this caller's role may not do `action`."""
        if not may(self.role, action):
            raise Forbidden(
                "forbidden",
                f"A {self.role} may not do this.",
                hint="Use a key with a role that may; keys with the role admin make keys.",
            )
