"""What an engine's log says: why it failed, or how far its start is.

Recognition is data: one row a failure line, tested against real logs. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from controlplane.domain.reasons import Reason

Say = Callable[[re.Match[str]], str]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an engine failed. `detail` is a sentence for people with the log's own figures;
    empty where the reason's own sentence already says it all."""

    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A line that tells. `say` makes the detail from the match. A weak rule only counts
    where no other one matches: it names a symptom that has its cause elsewhere in the log."""

    pattern: re.Pattern[str]
    reason: Reason
    say: Say | str = ""
    weak: bool = False

    def failure(self, match: re.Match[str]) -> Failure:
        text = self.say if isinstance(self.say, str) else self.say(match)
        return Failure(self.reason, _plain(text))


def _rule(pattern: str, reason: Reason, say: str = "", *, weak: bool = False) -> Rule:
    """`say` is a format string over the pattern's groups: `{0}` is the first."""

    def build(match: re.Match[str]) -> str:
        return say.format(*(g or "?" for g in match.groups()))

    return Rule(re.compile(pattern, re.MULTILINE), reason, build if say else "", weak)


_DRAFT = r"validation error for SpeculativeConfig\s+Value error, "

RULES: tuple[Rule, ...] = (
    # The context and the cache.
    _rule(
        r"To serve at least one request with the model's max seq len \((\d+)\)"
        r".{0,400}?estimated maximum model length is (\d+)",
        Reason.CONTEXT_TOO_LONG,
        "A context of {0} tokens needs more cache than there is. "
        "Set context_length to {1} or less.",
    ),
    _rule(
        r"To serve at least one request with the model's max seq len \((\d+)\)",
        Reason.CONTEXT_TOO_LONG,
        "A context of {0} tokens needs more cache than there is. Set a smaller context_length.",
    ),
    _rule(
        r"max_model_len \((\d+)\) is greater than the derived max_model_len "
        r"\((?:max_position_embeddings=)?(\d+)?",
        Reason.CONTEXT_TOO_LONG,
        "The model itself ends at {1} tokens, and context_length is {0}.",
    ),
    # Memory.
    _rule(
        r"Available memory on node \d+ \(([\d.]+)/[\d.]+ GiB\).{0,80}is less than requested "
        r"memory for kv \(([\d.]+) GiB\)",
        Reason.OUT_OF_MEMORY,
        "The cache wants {1} GiB and the machine has {0} GiB free.",
    ),
    _rule(
        r"Free memory on device \S+ \(([\d.]+)/([\d.]+) GiB\) on startup is less than desired",
        Reason.OUT_OF_GPU_MEMORY,
        "Only {0} of the GPU's {1} GiB are free: something else uses it.",
    ),
    _rule(
        r"(?:CUDA|HIP) out of memory|torch\.OutOfMemoryError|OutOfMemoryError: (?:CUDA|HIP)"
        r"|No available memory for the cache blocks",
        Reason.OUT_OF_GPU_MEMORY,
    ),
    _rule(
        r"Insufficient space in /dev/shm.{0,80}?([\d.]+ [KMG]iB) required",
        Reason.OUT_OF_MEMORY,
        "Shared memory (/dev/shm) is too small: the engine needs {0} of it.",
    ),
    _rule(
        r"Insufficient space in /dev/shm",
        Reason.OUT_OF_MEMORY,
        "Shared memory (/dev/shm) is too small or full.",
    ),
    _rule(
        r"std::bad_alloc|DefaultCPUAllocator: can't allocate memory|\bMemoryError\b"
        r"|Cannot allocate memory",
        Reason.OUT_OF_MEMORY,
    ),
    _rule(
        r"No space left on device|No usable temporary directory found",
        Reason.DISK_FULL,
        "The engine found no room for its temporary files.",
    ),
    # Speculation.
    _rule(
        r"Target and draft model should have the same vocabulary size\."
        r"(?: Target model vocab_size=(\d+)\. Draft model vocab_size=(\d+))?",
        Reason.DRAFT_VOCABULARY_MISMATCH,
        "The target's vocabulary has {0} entries and the draft's {1}.",
    ),
    _rule(
        r"speculative_draft_tensor_parallel_size=(\d+) cannot be other value than 1",
        Reason.BAD_ENGINE_ARGUMENTS,
        "The draft can run on one GPU or on all of the target's, not on {0}.",
    ),
    # The model.
    _rule(
        r"model type `([^`\n]{1,80})` but Transformers does not recognize this architecture",
        Reason.UNSUPPORTED_ARCHITECTURE,
        'The engine does not know the model type "{0}".',
    ),
    _rule(r"does not recognize this architecture", Reason.UNSUPPORTED_ARCHITECTURE),
    _rule(
        r"Model architectures \[([^\]\n]{1,200})\] (?:are not supported|failed to be inspected)",
        Reason.UNSUPPORTED_ARCHITECTURE,
        "The engine does not know the architecture {0}.",
    ),
    _rule(
        r"has no attribute 'image_token_index'",
        Reason.UNSUPPORTED_ARCHITECTURE,
        "This engine can't speculate for this multimodal model.",
    ),
    _rule(
        r"contains custom code which must be executed|trust_remote_code=True",
        Reason.UNSUPPORTED_ARCHITECTURE,
        "The model brings code of its own, and that is not run here.",
    ),
    _rule(
        r"Unknown quantization method: ([\w.-]+?)\.? ",
        Reason.UNSUPPORTED_QUANTIZATION,
        'The engine does not know the quantisation "{0}".',
    ),
    _rule(
        r"Cannot find the config file for (\w+)",
        Reason.UNSUPPORTED_QUANTIZATION,
        "The weights are not quantised with {0}: their config says nothing of it.",
    ),
    _rule(r"static_scaled_fp8_quant", Reason.UNSUPPORTED_QUANTIZATION, "FP8 does not run here."),
    _rule(
        r"[Qq]uantization method (\S{1,40}) is not supported",
        Reason.UNSUPPORTED_QUANTIZATION,
        'The quantisation "{0}" does not run here.',
    ),
    _rule(
        r"attention heads \((\d+)\) must be divisible by tensor parallel size \((\d+)\)",
        Reason.TENSOR_PARALLEL_MISMATCH,
        "The model's {0} attention heads can't be shared out evenly to {1} GPUs.",
    ),
    _rule(r"must be divisible by tensor parallel size", Reason.TENSOR_PARALLEL_MISMATCH),
    # The files.
    _rule(
        _DRAFT + r"Invalid repository ID or local directory specified",
        Reason.MODEL_NOT_FOUND,
        "The draft model's folder is missing or holds no config.json.",
    ),
    _rule(
        r"Invalid repository ID or local directory specified",
        Reason.MODEL_NOT_FOUND,
        "The model's folder is missing or holds no config.json.",
    ),
    _rule(
        r"Repo id must be in the form|LocalEntryNotFoundError",
        Reason.MODEL_NOT_FOUND,
        "The model's folder is not on this machine.",
    ),
    _rule(
        r"Cannot find any model weights with",
        Reason.BAD_WEIGHTS,
        "The model's folder holds no weights.",
    ),
    _rule(
        r"SafetensorError[^\n]{0,80}?(incomplete metadata|header too (?:large|small)"
        r"|invalid header[^\n,]{0,40})?",
        Reason.BAD_WEIGHTS,
        "A weights file is cut short or damaged.",
    ),
    _rule(
        r"vocab_parallel_embedding\.py\", line \d+, in weight_loader",
        Reason.BAD_WEIGHTS,
        "The weights' vocabulary has another size than the model's config says.",
    ),
    # Arguments and the surroundings.
    _rule(
        r"unrecognized arguments: ([^\n]{1,200})",
        Reason.BAD_ENGINE_ARGUMENTS,
        "This engine does not know: {0}",
    ),
    _rule(
        r"error: argument (\S{1,60}): [^\n]{0,400}cannot be converted to",
        Reason.BAD_ENGINE_ARGUMENTS,
        "This engine can't read the value of {0}",
    ),
    _rule(
        r"validation error for (\w+)\n(\w{1,60})\n\s+Unexpected keyword argument",
        Reason.BAD_ENGINE_ARGUMENTS,
        '{0} has no "{1}" in this engine.',
    ),
    _rule(
        r"Sleep mode is not supported on current platform",
        Reason.BAD_ENGINE_ARGUMENTS,
        "Sleep mode does not run here.",
    ),
    _rule(
        r"Not enough allowed NUMA nodes to bind threads",
        Reason.BAD_ENGINE_ARGUMENTS,
        "The processor has too few memory nodes for that many parts of the model.",
    ),
    _rule(r"Address already in use", Reason.PORT_IN_USE),
    _rule(
        r"No package metadata was found for vllm|No module named 'vllm'",
        Reason.ENGINE_MISSING,
        "The engine's environment is incomplete.",
    ),
    # Symptoms.
    _rule(
        r"validation error for (\w+)\n\s*(?:Value error, )?([^\n\[]{1,200})",
        Reason.BAD_ENGINE_ARGUMENTS,
        "{0}: {1}",
        weak=True,
    ),
    _rule(
        r"^vllm(?: serve)?: error: ([^\n]{1,200})",
        Reason.BAD_ENGINE_ARGUMENTS,
        "{0}",
        weak=True,
    ),
    _rule(
        r"Worker proc \S+ died unexpectedly|engine core exited unexpectedly",
        Reason.ENGINE_DIED,
        "A part of the engine ended by itself.",
        weak=True,
    ),
)

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_PREFIX = re.compile(r"^\([\w-]+ pid=\d+\) (?:ERROR \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?", re.M)
_ROOT = re.compile(r"^\((?:Worker|VllmWorker|EngineCore)[\w-]* pid=\d+\) ERROR ")
_QUIET = re.compile(r"^(?:\([\w-]+ pid=\d+\) )?(?:INFO|DEBUG)[ :]")
_LAST_WORDS = re.compile(r"^[\w.]*(?:Error|Exception)\b: .+|^[\w.]*(?:Error|Exception)$", re.M)


def classify(log_text: str) -> Failure | None:
    """Why the engine that wrote `log_text` failed; None when the log does not say.

    The first error of a worker or of the engine core is the cause: what follows, and what
    the API server says of it, are consequences. Elsewhere the last telling line counts:
    earlier ones are tries that were repeated.
    """
    lines = _ANSI.sub("", log_text).splitlines()
    root = _joined(line for line in lines if _ROOT.match(line))
    rest = _joined(line for line in lines if not _QUIET.match(line))
    strong = [r for r in RULES if not r.weak]
    weak = [r for r in RULES if r.weak]
    return (
        _earliest(strong, root) or _latest(strong, rest) or _latest(weak, rest)
    )  # fmt: skip


def last_words(log_text: str) -> str:
    """The last exception line of a log that no rule knows; empty when there is none. Only for
    the log of an engine that never answered: no request's text can be in it then."""
    text = _joined(_ANSI.sub("", log_text).splitlines())
    found = [m for m in _LAST_WORDS.findall(text) if "See root cause above" not in m]
    return _plain(found[-1]) if found else ""


_STAGES: tuple[tuple[re.Pattern[str], Reason], ...] = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (r"Starting to load model|Loading drafter model", Reason.LOADING_WEIGHTS),
        (r"Loading \S+ checkpoint shards", Reason.LOADING_WEIGHTS),
        # A draft is loaded after its target, so the end of one load says nothing.
        (r"Dynamo bytecode transform|Available KV cache memory|for KV cache", Reason.WARMING_UP),
        (r"KV cache size|Capturing CUDA graph|init engine \(profile", Reason.WARMING_UP),
        (r"Starting vLLM (?:API )?server|Started server process", Reason.WARMING_UP),
    )
)


def progress_of(log_text: str) -> Reason:
    """How far a start is: `STARTING_ENGINE`, then `LOADING_WEIGHTS`, then `WARMING_UP`."""
    last, reason = -1, Reason.STARTING_ENGINE
    for pattern, stage in _STAGES:
        for match in pattern.finditer(log_text):
            if match.end() > last:
                last, reason = match.end(), stage
    return reason


def _joined(lines: Iterable[str]) -> str:
    """The lines without their process and place, so that a rule can span two of them."""
    return _PREFIX.sub("", "\n".join(lines))


def _earliest(rules: list[Rule], text: str) -> Failure | None:
    found = [(m.start(), n, m) for n, r in enumerate(rules) if (m := r.pattern.search(text))]
    if not found:
        return None
    _, n, match = min(found, key=lambda f: f[:2])
    return rules[n].failure(match)


def _latest(rules: list[Rule], text: str) -> Failure | None:
    found = [(m.end(), -n, m) for n, r in enumerate(rules) for m in r.pattern.finditer(text)]
    if not found:
        return None
    _, n, match = max(found, key=lambda f: f[:2])
    return rules[-n].failure(match)


def _plain(text: str) -> str:
    """One line without control characters, 300 characters at most."""
    return _CONTROL.sub(" ", text).strip()[:300]
