"""The shapes of the smaller nouns: plans, tiers, models, keys, health."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from controlplane.api.faults import KEY_NAME
from controlplane.api.schemas.deployments import Command, Manifest
from controlplane.api.schemas.specs import Duration, Name, Spec
from controlplane.auth.principals import Action, Role
from controlplane.domain.tiers import DeviceKind

KeyName = Annotated[str, Field(pattern=KEY_NAME)]


class Tier(BaseModel):
    name: str
    device: DeviceKind
    gpu: str | None
    count: int = Field(description="GPUs, or shares of the processor, that one replica takes.")
    memory_bytes: int | None = Field(description="Of one of them.")
    bandwidth: float | None = Field(description="Bytes a second, of one of them.")
    price_hour: float | None
    kv_cache_gib: int | None
    description: str
    here: bool | None = Field(description="Whether this machine has it; null on a cluster.")
    default: bool = Field(description="What a spec without a tier gets.")


class Finding(BaseModel):
    severity: Literal["error", "warning", "note"]
    code: str
    detail: str
    hint: str


class Plan(BaseModel):
    """What a spec would become. What isn't known is null."""

    spec: Spec
    tier: Tier
    profile: dict[str, Any] | None
    fit: dict[str, Any] | None
    findings: list[Finding]
    cost: dict[str, Any] | None
    speedup: dict[str, Any] | None
    command: Command | None
    manifest: Manifest | None


class LocalModel(BaseModel):
    """A model that is here without a hub."""

    name: str = Field(examples=["demo/smollm2-135m"])
    source: Literal["demo", "local"]
    path: str
    ready: bool = Field(description="Whether its folder holds a model now.")
    created_at: datetime | None


class LocalModelRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Name = Field(description="It is used as `local/NAME`.")
    path: str = Field(description="An absolute folder of the server's machine.")


class Key(BaseModel):
    id: str
    name: str
    role: Role
    prefix: str = Field(description="How the key begins, to recognise it by.")
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKey(Key):
    key: str = Field(description="The key itself, shown this once.")


class KeyRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: KeyName
    role: Role = Role.MEMBER
    expires_in: Duration | None = Field(None, description="Null: it does not expire.")


class KeyId(BaseModel):
    id: str
    name: str


class Me(BaseModel):
    """Who is calling."""

    workspace: str
    role: Role
    key: KeyId
    may: list[Action]


class Part(BaseModel):
    name: str
    ok: bool
    age_seconds: float | None = Field(description="Since its last proof; null: there was none.")
    detail: str
    hint: str


class Health(BaseModel):
    status: Literal["ok", "degraded"]
    parts: list[Part]


class SignInLink(BaseModel):
    url: str = Field(description="Works once.")
    expires_at: datetime


class Alive(BaseModel):
    status: Literal["ok"]
