"""What one replica is now, from its records, its process and its own answers."""

from __future__ import annotations

import time

from controlplane.domain.engine_failures import progress_of
from controlplane.domain.reasons import Reason
from worker.drivers.base import ReplicaSeen, ReplicaState, Unreachable
from worker.drivers.local.locks import slot_held
from worker.drivers.local.logs import text_of
from worker.drivers.local.outcome import why_it_ended
from worker.drivers.local.probe import Answer, ask
from worker.drivers.local.processes import stat_of
from worker.drivers.local.records import Exit, Life, Order, ReplicaFolder

PROGRESS_BYTES = 65_536
EXIT_SECONDS = 0.5  # from a process's end to its keeper's note of it: milliseconds
_UNLISTED = "It answers, and does not list the model under its name."
_SILENT = "Its process lives and does not answer."


def look(folder: ReplicaFolder) -> ReplicaSeen | None:
    """None when nothing is there, or what was there ended as it was told to.

    Raises Unreachable when it can't be told: something holds the slot, and no record says
    what. The answer of a living engine takes a few seconds at most.
    """
    order, life = folder.order(), folder.life()
    if order is None and life is None:
        return None
    if order is None or life is None or life.command != order.command:
        if slot_held(folder.path.parent, folder.slot):
            raise Unreachable("a start is under way")
        return None
    if folder.stopped(life):
        ends = life.members() or slot_held(folder.path.parent, folder.slot)
        return _seen(order, life, ReplicaState.STOPPING) if ends else None
    if not life.main_lives():
        return _ended(folder, order, life)
    return _living(folder, order, life)


def _living(folder: ReplicaFolder, order: Order, life: Life) -> ReplicaSeen:
    answer = ask(order.port, order.name, folder.key())
    if answer.serves:
        if not folder.answered(life):
            folder.write_answered(life)
        return _seen(order, life, ReplicaState.ANSWERING, answer)
    if folder.answered(life):
        return _seen(order, life, ReplicaState.SILENT, detail=_SILENT)
    reason = progress_of(text_of(folder, life, PROGRESS_BYTES))
    detail = _UNLISTED if answer.well else ""
    return _seen(order, life, ReplicaState.STARTING, reason=reason, detail=detail)


def _ended(folder: ReplicaFolder, order: Order, life: Life) -> ReplicaSeen:
    failure = why_it_ended(
        life,
        _exit_of(folder, life),
        had_answered=folder.answered(life),
        log=text_of(folder, life),
    )
    return _seen(
        order, life, ReplicaState.EXITED, reason=failure.reason, detail=failure.detail
    )  # fmt: skip


def _exit_of(folder: ReplicaFolder, life: Life) -> Exit | None:
    deadline = time.monotonic() + EXIT_SECONDS
    while True:
        end = folder.exit()
        if end is not None and end.pid == life.pid:
            return end
        if stat_of(life.session) is None or time.monotonic() > deadline:
            return None
        time.sleep(0.02)


def _seen(
    order: Order,
    life: Life,
    state: ReplicaState,
    answer: Answer | None = None,
    *,
    reason: Reason | None = None,
    detail: str = "",
) -> ReplicaSeen:
    return ReplicaSeen(
        slot=order.slot,
        render_hash=order.render_hash,
        state=state,
        incarnation=life.incarnation,
        endpoint=f"http://127.0.0.1:{order.port}",
        started_at=life.started_at,
        reason=reason,
        detail=detail,
        running=answer.running if answer else None,
        waiting=answer.waiting if answer else None,
    )
