"""Real logs in, reasons out."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.domain.engine_failures import (
    RULES,
    Failure,
    classify,
    last_words,
    progress_of,
)
from controlplane.domain.reasons import EXPLANATIONS, Reason

LOGS = Path(__file__).parent / "engine_logs"

FAILED: dict[str, tuple[Reason, str]] = {
    "badarch": (Reason.UNSUPPORTED_ARCHITECTURE, 'The engine does not know the model type "foo".'),
    "badquant": (
        Reason.UNSUPPORTED_QUANTIZATION,
        'The engine does not know the quantisation "foo".',
    ),
    "badspecjson": (
        Reason.BAD_ENGINE_ARGUMENTS,
        "This engine can't read the value of --speculative-config/-sc",
    ),
    "badspeckey": (
        Reason.BAD_ENGINE_ARGUMENTS,
        'SpeculativeConfig has no "foo" in this engine.',
    ),
    "draftmissing": (
        Reason.MODEL_NOT_FOUND,
        "The draft model's folder is missing or holds no config.json.",
    ),
    "drafttp": (
        Reason.BAD_ENGINE_ARGUMENTS,
        "The draft can run on one GPU or on all of the target's, not on 2.",
    ),
    "hfname": (Reason.MODEL_NOT_FOUND, "The model's folder is not on this machine."),
    "killengine": (Reason.ENGINE_DIED, "A part of the engine ended by itself."),
    "killworker": (Reason.ENGINE_DIED, "A part of the engine ended by itself."),
    "kvhuge": (
        Reason.OUT_OF_MEMORY,
        "The cache wants 200.0 GiB and the machine has 12.41 GiB free.",
    ),
    "kvsmall": (
        Reason.CONTEXT_TOO_LONG,
        (
            "A context of 8192 tokens needs more cache than there is. "
            "Set context_length to 1920 or less."
        ),
    ),
    "mml-toolong": (
        Reason.CONTEXT_TOO_LONG,
        "The model itself ends at 8192 tokens, and context_length is 100000.",
    ),
    "noconfig": (
        Reason.MODEL_NOT_FOUND,
        "The model's folder is missing or holds no config.json.",
    ),
    "nomodel": (Reason.MODEL_NOT_FOUND, "The model's folder is not on this machine."),
    "noweights": (Reason.BAD_WEIGHTS, "The model's folder holds no weights."),
    "portinuse": (Reason.PORT_IN_USE, ""),
    "pp2": (
        Reason.BAD_ENGINE_ARGUMENTS,
        "The processor has too few memory nodes for that many parts of the model.",
    ),
    "quantfp8": (Reason.UNSUPPORTED_QUANTIZATION, "FP8 does not run here."),
    "quantgptq": (
        Reason.UNSUPPORTED_QUANTIZATION,
        "The weights are not quantised with gptq: their config says nothing of it.",
    ),
    "shapemismatch": (
        Reason.BAD_WEIGHTS,
        "The weights' vocabulary has another size than the model's config says.",
    ),
    "sleepmode": (Reason.BAD_ENGINE_ARGUMENTS, "Sleep mode does not run here."),
    "tp3": (
        Reason.TENSOR_PARALLEL_MISMATCH,
        "The model's 9 attention heads can't be shared out evenly to 2 GPUs.",
    ),
    "truncweights": (Reason.BAD_WEIGHTS, "A weights file is cut short or damaged."),
    "unknownflag": (
        Reason.BAD_ENGINE_ARGUMENTS,
        "This engine does not know: --no-such-flag",
    ),
    "vocabmismatch": (
        Reason.DRAFT_VOCABULARY_MISMATCH,
        "The target's vocabulary has 49152 entries and the draft's 49280.",
    ),
}

# These served. What ended them was a signal from outside.
SERVED = {
    "async", "healthy-speculative", "healthy-start", "killapi", "lora", "target-smaller",
    "term0", "term3", "term30",
}  # fmt: skip


def _log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


def test_every_log_that_lies_here_is_in_one_of_the_two_tables() -> None:
    assert {p.stem for p in LOGS.glob("*.log")} == FAILED.keys() | SERVED


@pytest.mark.parametrize("name", sorted(FAILED))
def test_each_real_failure_is_recognised_with_a_sentence(name: str) -> None:
    assert classify(_log(name)) == Failure(*FAILED[name])


@pytest.mark.parametrize("name", sorted(FAILED))
def test_each_real_failure_has_a_fix_to_offer(name: str) -> None:
    assert EXPLANATIONS[FAILED[name][0]].hint


@pytest.mark.parametrize("name", sorted(SERVED))
def test_an_engine_that_served_shows_no_failure(name: str) -> None:
    assert classify(_log(name)) is None


LINES = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": Failure(
        Reason.OUT_OF_GPU_MEMORY
    ),
    "ValueError: Free memory on device cuda:0 (3.1/139.8 GiB) on startup is less than desired "
    "GPU memory utilization (0.9, 125.8 GiB).": Failure(
        Reason.OUT_OF_GPU_MEMORY,
        "Only 3.1 of the GPU's 139.8 GiB are free: something else uses it.",
    ),
    "RuntimeError: Insufficient space in /dev/shm: 64.0 MiB there, 160 MiB required": Failure(
        Reason.OUT_OF_MEMORY,
        "Shared memory (/dev/shm) is too small: the engine needs 160 MiB of it.",
    ),
    "OSError: [Errno 28] No space left on device": Failure(
        Reason.DISK_FULL, "The engine found no room for its temporary files."
    ),
    "importlib.metadata.PackageNotFoundError: No package metadata was found for vllm": Failure(
        Reason.ENGINE_MISSING, "The engine's environment is incomplete."
    ),
    "AttributeError: 'Qwen2VLConfig' object has no attribute 'image_token_index'": Failure(
        Reason.UNSUPPORTED_ARCHITECTURE, "This engine can't speculate for this multimodal model."
    ),
}


@pytest.mark.parametrize("line", sorted(LINES))
def test_lines_of_other_machines_are_recognised_too(line: str) -> None:
    assert classify(f"(Worker pid=7) ERROR 12-01 00:00:00 [a.py:1] {line}") == LINES[line]


def test_the_first_error_of_a_worker_wins_over_everything_that_follows_from_it() -> None:
    log = (
        "(Worker pid=8) ERROR 12-01 00:00:00 [a.py:1] RuntimeError: CUDA out of memory\n"
        "(EngineCore pid=7) ERROR 12-01 00:00:01 [b.py:1] OSError: Address already in use\n"
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    assert classify(log) == Failure(Reason.OUT_OF_GPU_MEMORY)


def test_colour_codes_hide_nothing() -> None:
    coloured = (
        "\x1b[1;36m(Worker pid=8)\x1b[0;0m ERROR 12-01 00:00:00 [a.py:1] "
        "RuntimeError: Cannot find any model weights\x1b[0m with `/models/x`"
    )
    assert classify(coloured) == Failure(Reason.BAD_WEIGHTS, "The model's folder holds no weights.")


def test_a_model_that_is_named_like_a_failure_is_not_one() -> None:
    log = "(APIServer pid=1) INFO 12-01 00:00:00 [a.py:1] model /models/Address already in use"
    assert classify(log) is None


def test_a_detail_is_one_short_line_whatever_the_log_holds() -> None:
    failure = classify("vllm: error: unrecognized arguments: --x\x07\x1b]0;" + "y" * 5000)
    assert failure is not None
    assert failure.detail.isprintable()
    assert len(failure.detail) <= 300


def test_an_unknown_failure_leaves_its_last_exception() -> None:
    log = "Traceback (most recent call last):\n  File x\nKeyError: 'rope'\nbye\n"
    assert classify(log) is None
    assert last_words(log) == "KeyError: 'rope'"


def test_an_empty_log_says_nothing() -> None:
    assert classify("") is None
    assert last_words("") == ""
    assert progress_of("") is Reason.STARTING_ENGINE


@pytest.mark.parametrize("name", ["healthy-start", "healthy-speculative"])
def test_a_healthy_start_goes_through_its_stages_in_order(name: str) -> None:
    lines = _log(name).splitlines()
    seen = [progress_of("\n".join(lines[: n + 1])) for n in range(len(lines))]
    stages = [s for n, s in enumerate(seen) if n == 0 or s is not seen[n - 1]]
    assert stages == [Reason.STARTING_ENGINE, Reason.LOADING_WEIGHTS, Reason.WARMING_UP]


def test_every_rule_ends_in_a_reason_of_a_failure() -> None:
    starts = {Reason.STARTING_ENGINE, Reason.LOADING_WEIGHTS, Reason.WARMING_UP}
    assert not {r.reason for r in RULES} & starts
