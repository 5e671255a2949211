"""Why a phase is what it is: a closed list, each with a sentence and a way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Reason(StrEnum):
    INSTALLING_ENGINE = "InstallingEngine"
    ENGINE_MISSING = "EngineMissing"
    WAITING_FOR_GPU = "WaitingForGpu"
    DRIVER_UNREACHABLE = "DriverUnreachable"
    IMAGE_PULL = "ImagePull"
    DOWNLOADING_WEIGHTS = "DownloadingWeights"
    LOADING_WEIGHTS = "LoadingWeights"
    WARMING_UP = "WarmingUp"
    STARTING_ENGINE = "StartingEngine"
    GATED_MODEL = "GatedModel"
    MODEL_NOT_FOUND = "ModelNotFound"
    HUB_RATE_LIMITED = "HubRateLimited"
    HUB_UNREACHABLE = "HubUnreachable"
    DISK_FULL = "DiskFull"
    DOWNLOAD_FAILED = "DownloadFailed"
    OUT_OF_GPU_MEMORY = "OutOfGpuMemory"
    OUT_OF_MEMORY = "OutOfMemory"
    CONTEXT_TOO_LONG = "ContextTooLong"
    DRAFT_VOCABULARY_MISMATCH = "DraftVocabularyMismatch"
    UNSUPPORTED_QUANTIZATION = "UnsupportedQuantization"
    UNSUPPORTED_ARCHITECTURE = "UnsupportedArchitecture"
    TENSOR_PARALLEL_MISMATCH = "TensorParallelMismatch"
    BAD_WEIGHTS = "BadWeights"
    BAD_ENGINE_ARGUMENTS = "BadEngineArguments"
    PORT_IN_USE = "PortInUse"
    START_TIMEOUT = "StartTimeout"
    ENGINE_DIED = "EngineDied"
    CRASH_LOOP = "CrashLoop"
    QUOTA_EXCEEDED = "QuotaExceeded"
    IDLE_POLICY = "IdlePolicy"
    TIMER_POLICY = "TimerPolicy"
    SLEEP_REQUESTED = "SleepRequested"
    MADE_ROOM = "MadeRoom"
    PAUSED_BY_PERSON = "PausedByPerson"
    DELETE_REQUESTED = "DeleteRequested"
    FINISHING_REQUESTS = "FinishingRequests"
    NOT_ANSWERING = "NotAnswering"
    INVALID_SPEC = "InvalidSpec"


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a person reads when no more is known. `permanent` is true when trying the same
    again cannot help: a person must change something first."""

    sentence: str
    hint: str = ""
    permanent: bool = False


EXPLANATIONS: Mapping[Reason, Explanation] = MappingProxyType(
    {
        Reason.INSTALLING_ENGINE: Explanation("The engine is being installed on this machine."),
        Reason.ENGINE_MISSING: Explanation(
            "No engine is installed on this machine.",
            "Install one: slipstream engines install cpu (or cuda).",
        ),
        Reason.WAITING_FOR_GPU: Explanation("No slot of this tier is free."),
        Reason.DRIVER_UNREACHABLE: Explanation(
            "The machines that run the engines can't be asked at the moment.",
            "Nothing was changed; it goes on by itself when they answer again.",
        ),
        Reason.IMAGE_PULL: Explanation("The engine's image is being pulled."),
        Reason.DOWNLOADING_WEIGHTS: Explanation("The model's weights are being downloaded."),
        Reason.LOADING_WEIGHTS: Explanation("The engine is loading the weights."),
        Reason.WARMING_UP: Explanation("The engine is warming up."),
        Reason.STARTING_ENGINE: Explanation("The engine process is starting."),
        Reason.GATED_MODEL: Explanation(
            "The hub wants an accepted licence and a token for this model.",
            "Accept the licence on the model's page, set HF_TOKEN, then slipstream resume NAME.",
            permanent=True,
        ),
        Reason.MODEL_NOT_FOUND: Explanation(
            "There is no such model, or not in that revision.",
            "Check the model and draft IDs and the revision (demo/...: slipstream demo-models;"
            " local/...: slipstream models add), then slipstream resume NAME.",
            permanent=True,
        ),
        Reason.HUB_RATE_LIMITED: Explanation(
            "The hub has rate-limited the download.",
            "It is tried again by itself; a token (HF_TOKEN) raises the limit.",
        ),
        Reason.HUB_UNREACHABLE: Explanation(
            "The hub can't be reached.",
            "Check the network or SLIPSTREAM_HUB_ENDPOINT; it is tried again by itself.",
        ),
        Reason.DISK_FULL: Explanation(
            "The disk has no room for the weights.",
            "Free some: slipstream cache ls, then slipstream cache rm.",
        ),
        Reason.DOWNLOAD_FAILED: Explanation(
            "The weights could not be fetched.",
            "It is tried again by itself; its log is in the data directory, below downloads.",
        ),
        Reason.OUT_OF_GPU_MEMORY: Explanation(
            "The GPU's memory is too small for the weights, the cache and the draft together.",
            "Take a larger tier, a quantised model or a smaller context_length.",
            permanent=True,
        ),
        Reason.OUT_OF_MEMORY: Explanation(
            "The machine's memory is too small for this engine.",
            "Free memory, or take a smaller model or context_length.",
        ),
        Reason.CONTEXT_TOO_LONG: Explanation(
            "The context length does not fit the model or the cache.",
            "Lower context_length.",
            permanent=True,
        ),
        Reason.DRAFT_VOCABULARY_MISMATCH: Explanation(
            "Draft and target have vocabularies of different sizes.",
            "Take a draft of the same family, or set speculation.vocabulary to heterogeneous.",
            permanent=True,
        ),
        Reason.UNSUPPORTED_QUANTIZATION: Explanation(
            "The engine does not support this quantisation here.",
            "Take another quantised variant of the model, or another tier.",
            permanent=True,
        ),
        Reason.UNSUPPORTED_ARCHITECTURE: Explanation(
            "The engine does not know this model's architecture.",
            "Take another model or a newer engine version.",
            permanent=True,
        ),
        Reason.TENSOR_PARALLEL_MISMATCH: Explanation(
            "The tier's GPU count does not divide the model's attention heads.",
            "Take a tier with another number of GPUs.",
            permanent=True,
        ),
        Reason.BAD_WEIGHTS: Explanation(
            "The weights are incomplete or do not match the model's config.",
            "Remove them with slipstream cache rm and resume: they are fetched anew.",
            permanent=True,
        ),
        Reason.BAD_ENGINE_ARGUMENTS: Explanation(
            "The engine refused its arguments.",
            "Check engine.args and speculation; the log has the engine's own words.",
            permanent=True,
        ),
        Reason.PORT_IN_USE: Explanation(
            "Another program took the engine's port.", "A new port is taken by itself."
        ),
        Reason.START_TIMEOUT: Explanation(
            "The engine did not answer in time.",
            "Look at the log: slipstream logs NAME.",
        ),
        Reason.ENGINE_DIED: Explanation(
            "The engine's process ended by itself.",
            "It is started again; the log has its last words: slipstream logs NAME.",
        ),
        Reason.CRASH_LOOP: Explanation(
            "The engine ended again and again; its slot was freed.",
            "Look at the log (slipstream logs NAME), change the spec, then resume.",
            permanent=True,
        ),
        Reason.QUOTA_EXCEEDED: Explanation("A quota is used up."),
        Reason.IDLE_POLICY: Explanation(
            "Asleep because nobody called for a while.", "The next request wakes it."
        ),
        Reason.TIMER_POLICY: Explanation(
            "Asleep because its time was up.", "The next request wakes it."
        ),
        Reason.SLEEP_REQUESTED: Explanation(
            "Asleep because a person asked.", "The next request wakes it."
        ),
        Reason.MADE_ROOM: Explanation(
            "Asleep because another deployment needed its slot.", "The next request wakes it."
        ),
        Reason.PAUSED_BY_PERSON: Explanation(
            "Paused by a person.", "Start it again: slipstream resume NAME."
        ),
        Reason.DELETE_REQUESTED: Explanation("Being deleted."),
        Reason.FINISHING_REQUESTS: Explanation("Requests in flight are finishing."),
        Reason.NOT_ANSWERING: Explanation(
            "The engine lives and does not answer at the moment.",
            "It is restarted when it stays so; its log may say why: slipstream logs NAME.",
        ),
        Reason.INVALID_SPEC: Explanation(
            "The stored spec can't be read by this version.",
            "Change the spec, or delete the deployment.",
        ),
    }
)
