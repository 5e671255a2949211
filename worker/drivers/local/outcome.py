"""Why an engine ended: from its exit, its log and whether it had served. Pure."""

from __future__ import annotations

import signal

from controlplane.domain.engine_failures import Failure, classify, last_words
from controlplane.domain.reasons import Reason
from worker.drivers.local.records import Exit, Life

NOT_FOUND = 127  # the keeper's word for a program that could not be run


def why_it_ended(life: Life, end: Exit | None, *, had_answered: bool, log: str) -> Failure:
    """Never None: an engine that ended without being told to has failed, whatever its exit
    status says (a dead engine core makes vLLM end with 0)."""
    if _killed_for_memory(life, end):
        return Failure(Reason.OUT_OF_MEMORY, "The system ended it for want of memory.")
    if had_answered:
        return Failure(Reason.ENGINE_DIED, _how(end))
    if end is not None and end.status == NOT_FOUND and not log.strip():
        return Failure(Reason.ENGINE_MISSING, "The engine's program can't be run.")
    known = classify(log)
    if known is not None:
        return known
    words = last_words(log)
    return Failure(Reason.ENGINE_DIED, f"{_how(end)} {words}".strip())


def _killed_for_memory(life: Life, end: Exit | None) -> bool:
    """The kernel counts whom it kills for memory; when that number grew in this life and the
    engine, or a part of it, was not left to end by itself, it was among them."""
    return (
        end is not None
        and 0 <= life.oom_kills < end.oom_kills
        and (end.signal == signal.SIGKILL or end.status == 1)
    )


def _how(end: Exit | None) -> str:
    if end is None:
        return "It is gone, and nobody saw how it ended."
    if end.signal is not None:
        try:
            return f"It was ended by {signal.Signals(end.signal).name}."
        except ValueError:
            return f"It was ended by signal {end.signal}."
    return f"It ended with exit status {end.status}."
