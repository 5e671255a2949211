"""The local driver's pure parts: why an engine ended, what its answers mean, where it lies."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from controlplane.domain.engine_failures import Failure
from controlplane.domain.reasons import Reason
from controlplane.domain.tiers import Device, DeviceKind
from controlplane.settings import Engines, Settings
from tests.worker.drivers.stubs import LocalWorld, stub_command
from worker.drivers.base import EngineState
from worker.drivers.local.build import engines_of, local_driver
from worker.drivers.local.environment import engine_environment
from worker.drivers.local.outcome import why_it_ended
from worker.drivers.local.probe import Answer, ask
from worker.drivers.local.records import Exit, Life

LIFE = Life(7, 1, "boot", 6, 0.0, 0, "hash", oom_kills=3)
DIED = Reason.ENGINE_DIED
NO_MEMORY = Failure(Reason.OUT_OF_MEMORY, "The system ended it for want of memory.")

NO_PROGRAM = Failure(Reason.ENGINE_MISSING, "The engine's program can't be run.")
IN_USE = "OSError: Address already in use"


def _exit(status: int | None = None, ended_by: int | None = None, oom: int = 3) -> Exit:
    return Exit(7, status, ended_by, 1.0, oom)


@pytest.mark.parametrize(
    ("end", "had_answered", "log", "why"),
    [
        (_exit(0), True, "", Failure(DIED, "It ended with exit status 0.")),
        (_exit(0), False, "", Failure(DIED, "It ended with exit status 0.")),
        (_exit(1), False, IN_USE, Failure(Reason.PORT_IN_USE)),
        (_exit(1), True, IN_USE, Failure(DIED, "It ended with exit status 1.")),
        (_exit(ended_by=signal.SIGSEGV), True, "", Failure(DIED, "It was ended by SIGSEGV.")),
        (_exit(ended_by=99), True, "", Failure(DIED, "It was ended by signal 99.")),
        (_exit(ended_by=9), True, "", Failure(DIED, "It was ended by SIGKILL.")),
        (_exit(ended_by=9, oom=4), True, "", NO_MEMORY),
        (_exit(ended_by=9, oom=4), False, "", NO_MEMORY),
        (_exit(1, oom=4), False, "KeyError: 'x'", NO_MEMORY),
        (_exit(0, oom=4), True, "", Failure(DIED, "It ended with exit status 0.")),
        (_exit(ended_by=9, oom=-1), True, "", Failure(DIED, "It was ended by SIGKILL.")),
        (_exit(127), False, "", NO_PROGRAM),
        (None, False, "", Failure(DIED, "It is gone, and nobody saw how it ended.")),
    ],
)  # fmt: skip
def test_every_end_has_a_reason(
    end: Exit | None, had_answered: bool, log: str, why: Failure
) -> None:
    assert why_it_ended(LIFE, end, had_answered=had_answered, log=log) == why


class Canned(BaseHTTPRequestHandler):
    answers: dict[str, tuple[int, bytes]] = {}  # noqa: RUF012

    def do_GET(self) -> None:
        status, body = self.answers.get(self.path, (404, b""))
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        return


@pytest.fixture
def canned() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Canned,), {"answers": {}}))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


WELL = {"/health": (200, b""), "/v1/models": (200, b'{"data": [{"id": "hello"}]}')}
OLD = b'vllm_num_requests_running{model_name="hello"} 2.0\n'
TWO_PARTS = (
    b"# HELP vllm:num_requests_running Number of requests\n"
    b'vllm:num_requests_running{engine="0",model_name="hello"} 1.0\n'
    b'vllm:num_requests_running{engine="1",model_name="hello"} 2.0\n'
    b'vllm:num_requests_waiting{engine="0",model_name="hello"} 0.0\n'
    b'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 5.0\n'
)


@pytest.mark.parametrize(
    ("answers", "answer"),
    [
        ({}, Answer()),
        ({"/health": (503, b"")}, Answer()),
        ({"/health": (200, b"")}, Answer(well=True)),
        (WELL | {"/v1/models": (401, b"{}")}, Answer(well=True)),
        (WELL | {"/v1/models": (200, b"not json")}, Answer(well=True)),
        (WELL | {"/v1/models": (200, b'{"data": [{"id": "hello-2"}]}')}, Answer(well=True)),
        (WELL, Answer(well=True, serves=True)),
        (WELL | {"/metrics": (200, b"nonsense\n")}, Answer(True, True)),
        (WELL | {"/metrics": (200, OLD)}, Answer(True, True, 2, None)),
        (WELL | {"/metrics": (200, TWO_PARTS)}, Answer(True, True, 3, 0)),
    ],
)
def test_an_engines_answers_are_read_as_far_as_they_go(
    canned: ThreadingHTTPServer, answers: dict[str, tuple[int, bytes]], answer: Answer
) -> None:
    canned.RequestHandlerClass.answers = answers  # type: ignore[attr-defined]
    assert ask(canned.server_port, "hello", "key") == answer


def test_gpus_are_handed_over_by_their_own_names() -> None:
    gpus = [Device(f"GPU-{n}", DeviceKind.CUDA, "NVIDIA H200", 2**37) for n in range(2)]
    env = engine_environment(
        {"HF_HUB_OFFLINE": "1"},
        program="/engine/bin/python",
        preload="/engine/lib/libiomp5.so",
        devices=gpus,
        key="key",
        home=Path("/home"),
        tmp="/tmp/x",
        ours={"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/cuda", "HF_TOKEN": "secret"},
    )
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    assert env["PATH"] == "/engine/bin:/usr/bin"
    assert env["LD_LIBRARY_PATH"] == "/cuda"
    assert not env.keys() & {"HF_TOKEN", "LD_PRELOAD"}


def test_a_command_in_place_of_the_engine_needs_no_installation(tmp_path: Path) -> None:
    settings = Settings(tmp_path, engines=Engines(command=stub_command()))
    found = engines_of(settings)(DeviceKind.CPU, None)
    assert found.seen.state is EngineState.READY
    assert found.program is not None
    assert found.program.argv[-1].endswith("stub_engine")


def test_an_engine_that_nobody_installed_is_missing(tmp_path: Path) -> None:
    look = engines_of(Settings(tmp_path))
    assert look(DeviceKind.CPU, None).seen.state is EngineState.MISSING
    assert look(DeviceKind.ROCM, None).seen.state is EngineState.MISSING
    assert look(DeviceKind.CPU, None).program is None


def test_the_driver_with_its_real_parts_knows_this_machine(tmp_path: Path) -> None:
    driver = local_driver(Settings(tmp_path), dict)
    d = LocalWorld(tmp_path).deployment()
    assert driver.devices()
    assert driver.observe([d])[d.id].replicas == ()
