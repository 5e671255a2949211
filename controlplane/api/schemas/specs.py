"""The deployment spec as it travels. For the documentation only: what is right is decided by
`domain.spec_json`, which reads requests itself, so that nothing is coerced on the way."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from controlplane.api.faults import DURATION, NAME
from controlplane.domain.deployment import Method, ScaleDownPolicy, Vocabulary, WakeMode
from controlplane.domain.spec_json import (
    LONGEST_CONTEXT,
    MOST_LABELS,
    MOST_TOKENS,
    MOST_WAITING,
)

Name = Annotated[str, Field(pattern=NAME, examples=["qwen-vl"])]
Duration = Annotated[str, Field(pattern=DURATION, description="1 s to 30 days.", examples=["15m"])]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)] | Literal["auto"]
ModelId = Annotated[
    str,
    Field(
        max_length=128,
        description="`org/name`, the hub's page URL for it, `demo/NAME` or `local/NAME`.",
        examples=["Qwen/Qwen2.5-72B-Instruct"],
    ),
]
Context = Annotated[int, Field(ge=1, le=LONGEST_CONTEXT)]
ArgValue = bool | int | float | str
Labels = Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=MOST_LABELS)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SpeculationRequest(_Strict):
    method: Method = Method.AUTO
    tokens: Tokens = "auto"
    vocabulary: Vocabulary = Vocabulary.SAME
    workload: str | None = None


class ScaleDownRequest(_Strict):
    policy: ScaleDownPolicy = ScaleDownPolicy.IDLE
    after: Duration | None = Field(None, description="An hour by default; none with `never`.")


class WakeRequest(_Strict):
    mode: WakeMode = WakeMode.HOLD
    deadline: Duration = "15m"
    max_waiting: int = Field(100, ge=1, le=MOST_WAITING)


class ReplicasRequest(_Strict):
    min: int = Field(1, ge=1, le=64)
    max: int = Field(1, ge=1, le=64, description="Equal to `min` for now.")


class EngineRequest(_Strict):
    version: str | None = None
    args: dict[str, ArgValue] = Field(default_factory=dict)


class SpecRequest(_Strict):
    """A deployment to make."""

    name: Name
    model: ModelId
    tier: Name | None = Field(
        None, description="May be left out where the installation has a default one."
    )
    draft_model: ModelId | None = None
    speculation: SpeculationRequest = SpeculationRequest()
    scale_down: ScaleDownRequest = ScaleDownRequest()
    wake: WakeRequest = WakeRequest()
    replicas: ReplicasRequest = ReplicasRequest()
    context_length: Context | None = None
    revision: str | None = Field(None, max_length=100)
    hub_token: str | None = Field(None, description="A secret's name, never a token.")
    engine: EngineRequest = EngineRequest()
    labels: Labels = Field(default_factory=dict)


class PlanRequest(SpecRequest):
    """A spec to plan with; it needs no name."""

    name: Name | None = None  # type: ignore[assignment]


class SpecPatch(_Strict):
    """The fields to change (RFC 7396); null brings a field's default back."""

    name: Name | None = Field(None, description="Only the one that it has.")
    model: ModelId | None = None
    tier: Name | None = None
    draft_model: ModelId | None = None
    speculation: SpeculationPatch | None = None
    scale_down: ScaleDownPatch | None = None
    wake: WakePatch | None = None
    replicas: ReplicasPatch | None = None
    context_length: Context | None = None
    revision: str | None = None
    hub_token: str | None = None
    engine: EnginePatch | None = None
    labels: dict[str, str | None] | None = None


class SpeculationPatch(_Strict):
    method: Method | None = None
    tokens: Tokens | None = None
    vocabulary: Vocabulary | None = None
    workload: str | None = None


class ScaleDownPatch(_Strict):
    policy: ScaleDownPolicy | None = None
    after: Duration | None = None


class WakePatch(_Strict):
    mode: WakeMode | None = None
    deadline: Duration | None = None
    max_waiting: Annotated[int, Field(ge=1, le=MOST_WAITING)] | None = None


class ReplicasPatch(_Strict):
    min: Annotated[int, Field(ge=1, le=64)] | None = None
    max: Annotated[int, Field(ge=1, le=64)] | None = None


class EnginePatch(_Strict):
    version: str | None = None
    args: dict[str, ArgValue | None] | None = None


class Speculation(BaseModel):
    method: Method
    tokens: Tokens
    vocabulary: Vocabulary
    workload: str | None


class ScaleDown(BaseModel):
    policy: ScaleDownPolicy
    after: Duration | None


class Wake(BaseModel):
    mode: WakeMode
    deadline: Duration
    max_waiting: int


class Replicas(BaseModel):
    min: int
    max: int


class EngineChoice(BaseModel):
    version: str | None
    args: dict[str, ArgValue]


class Spec(BaseModel):
    """What is desired, every default filled in."""

    name: Name
    model: str
    tier: str
    draft_model: str | None
    speculation: Speculation
    scale_down: ScaleDown
    wake: Wake
    replicas: Replicas
    context_length: int | None
    revision: str | None
    hub_token: str | None
    engine: EngineChoice
    labels: dict[str, str]
