"""One start, step by step. A worker that dies between any two leaves what the next start
finds and goes on from, and never two engines: the slot's lock is taken first, and goes on to
the engine itself."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.domain.engines import EngineOrder, command
from controlplane.domain.naming import content_hash
from controlplane.domain.reasons import Reason
from controlplane.paths import DataDir
from worker.drivers.base import EffectRefused, ReplicaOrder, Unreachable
from worker.drivers.local.environment import engine_environment
from worker.drivers.local.launch import launch
from worker.drivers.local.locks import POLL_SECONDS, port_table, try_slot
from worker.drivers.local.ports import choose_port, ports_on_record
from worker.drivers.local.processes import send_group
from worker.drivers.local.records import Order, ReplicaFolder, replica_folders

SLOT_SECONDS = 3.0  # an engine that just ended leaves its keeper 2 s to clean up after it


@dataclass(frozen=True, slots=True)
class Program:
    """What runs in place of `vllm`, and the library that is loaded before it on a CPU."""

    argv: tuple[str, ...]
    preload: str | None = None


def start(data: DataDir, order: ReplicaOrder, program: Program, ours: Mapping[str, str]) -> None:
    """Starts `order` unless it runs. To be called under the deployment's fence.

    Raises EffectRefused when the slot has an engine of another hash, or when the program
    can't be run; Unreachable when the slot's former engine is still on its way out.
    """
    slot_fd = _claim_slot(data, order)
    if slot_fd is None:
        return
    try:
        _tidy(data, order)
        record, argv, env = _write_down(data, order, program, ours)
        folder = _folder(data, order)
        try:
            launch(
                folder,
                slot_fd=slot_fd,
                argv=argv,
                env=env,
                command=record.command,
                tmp=record.tmp,
            )
        except EffectRefused:
            folder.clear()
            raise
    finally:
        os.close(slot_fd)


def _folder(data: DataDir, order: ReplicaOrder) -> ReplicaFolder:
    return ReplicaFolder(data.replica(order.deployment_id, order.slot, order.render_hash))


def _claim_slot(data: DataDir, order: ReplicaOrder) -> int | None:
    """The slot's lock, or None when this very replica lives already."""
    deadline = time.monotonic() + SLOT_SECONDS
    while True:
        if _runs_already(data, order):
            return None
        fd = try_slot(data.deployment(order.deployment_id), order.slot)
        if fd is not None:
            return fd
        if time.monotonic() > deadline:
            raise Unreachable(f"slot {order.slot} is still held by an engine that ends")
        time.sleep(POLL_SECONDS)


def _runs_already(data: DataDir, order: ReplicaOrder) -> bool:
    for folder in _of_slot(data, order):
        life, there = folder.life(), folder.order()
        if life is None or there is None or not life.main_lives():
            continue
        if there.render_hash != order.render_hash:
            raise EffectRefused(
                Reason.WAITING_FOR_GPU, f"Slot {order.slot} is held by another version of it."
            )
        return True
    return False


def _tidy(data: DataDir, order: ReplicaOrder) -> None:
    """Ends what an engine of this slot left running, and removes what it left lying. The log
    of the same replica's former lives stays."""
    own = _folder(data, order)
    for folder in _of_slot(data, order):
        life = folder.life()
        if life is not None and life.members():
            send_group(life.pid, signal.SIGKILL)
            _wait_gone(folder)
        folder.clear()
        if folder.path != own.path:
            shutil.rmtree(folder.path)


def _wait_gone(folder: ReplicaFolder) -> None:
    deadline = time.monotonic() + SLOT_SECONDS
    life = folder.life()
    while life is not None and life.members():
        if time.monotonic() > deadline:
            raise Unreachable("what the slot's former engine left running does not end")
        time.sleep(POLL_SECONDS)


def _write_down(
    data: DataDir, order: ReplicaOrder, program: Program, ours: Mapping[str, str]
) -> tuple[Order, tuple[str, ...], dict[str, str]]:
    """Chooses the port and writes the order, then makes the folders that it names."""
    folder = _folder(data, order)
    folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Short, because sockets lie in it and their paths have a limit of 107 characters.
    tmp = Path(tempfile.gettempdir()) / f"slipstream-{secrets.token_hex(6)}"
    with port_table(data.replicas):
        port = choose_port(ports_on_record(data))
        rendered = command(
            EngineOrder(
                model_path=order.model_path,
                served_name=order.name,
                tier=order.tier,
                resolved=order.resolved,
                draft_path=order.draft_path,
                context_length=order.context_length,
                args=order.args,
                port=port,
                cores=tuple(core for d in order.devices for core in d.cores),
            )
        )
        argv = (*program.argv, *rendered.args)
        record = Order(
            slot=order.slot,
            render_hash=order.render_hash,
            name=order.name,
            port=port,
            devices=tuple(d.id for d in order.devices),
            tmp=str(tmp),
            command=content_hash({"argv": argv}),
        )
        folder.write_order(record, order.engine_key)
    tmp.mkdir(mode=0o700)
    data.engine_home.mkdir(mode=0o700, parents=True, exist_ok=True)
    env = engine_environment(
        rendered.env,
        program=program.argv[0],
        preload=program.preload,
        devices=order.devices,
        key=order.engine_key,
        home=data.engine_home,
        tmp=str(tmp),
        ours=ours,
    )
    return record, argv, env


def _of_slot(data: DataDir, order: ReplicaOrder) -> list[ReplicaFolder]:
    folders = replica_folders(data, order.deployment_id)
    return [f for f in folders if f.slot == order.slot]
