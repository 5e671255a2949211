"""What the probe reads out of recorded texts, and how a machine is shared out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane import machine
from controlplane.domain.tiers import GIB, DeviceKind, found_tiers
from controlplane.errors import Unavailable
from controlplane.machine import Gpu, Machine
from controlplane.settings import Engines, Settings

ROOT = Path(__file__).parents[2]

TWO_H200 = """\
0, GPU-5c0ba2a5-4d0f-2f8c-0a71-6b1a3f0c9d11, NVIDIA H200, 143771, 570.172.08
1, GPU-a3f8c2de-90b1-7e42-bb0e-5d2f7c614e0f, NVIDIA H200, 143771, 570.172.08
"""
SHARED_MEMORY = "0, GPU-0e1d2c3b-aaaa-bbbb-cccc-000000000001, NVIDIA GB10, [N/A], 580.95.05\n"

ZEN = """\
processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC 9655 96-Core Processor
flags\t\t: fpu vme sse4_2 avx avx2 fma avx512f avx512dq avx512_bf16 amd_lbr_v2

processor\t: 1
model name\t: AMD EPYC 9655 96-Core Processor
flags\t\t: fpu vme sse4_2 avx avx2 fma avx512f avx512dq avx512_bf16 amd_lbr_v2
"""
GRAVITON = """\
processor\t: 0
BogoMIPS\t: 2100.00
Features\t: fp asimd evtstrm aes sha1 sha2 crc32 atomics asimdhp sve bf16 i8mm
CPU implementer\t: 0x41
"""


def a_machine(cores: int = 2, memory: int = 24 * GIB, gpus: tuple[Gpu, ...] = ()) -> Machine:
    return Machine(
        system="Debian GNU/Linux 12 (bookworm)",
        python="3.11.2",
        architecture="x86_64",
        processor="AMD EPYC",
        features=("AVX2",),
        cores=tuple(range(cores)),
        memory_bytes=memory,
        disk_free_bytes=80 * GIB,
        gpus=gpus,
    )


def test_two_gpus_are_read_with_their_memory_and_driver() -> None:
    first, second = machine.parse_nvidia_smi(TWO_H200)
    assert first == Gpu(
        0, "GPU-5c0ba2a5-4d0f-2f8c-0a71-6b1a3f0c9d11", "NVIDIA H200", 143_771 * 2**20, "570.172.08"
    )
    assert second.index == 1


def test_a_gpu_without_memory_of_its_own_counts_with_the_machine_s() -> None:
    gpus = machine.parse_nvidia_smi(SHARED_MEMORY)
    (device,) = machine.devices_of(a_machine(memory=128 * GIB, gpus=gpus), 0)
    assert device.memory_bytes == 128 * GIB


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No devices were found\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "index, uuid, name, memory.total [MiB], driver_version\n",
    ],
)
def test_what_is_no_gpu_line_names_no_gpu(text: str) -> None:
    assert machine.parse_nvidia_smi(text) == ()


def test_the_processor_and_what_engines_use_of_it_are_read() -> None:
    assert machine.parse_cpuinfo(ZEN) == (
        "AMD EPYC 9655 96-Core Processor",
        ("AVX2", "AVX-512", "AVX-512 BF16"),
    )
    assert machine.parse_cpuinfo(GRAVITON) == ("", ("NEON", "BF16"))
    assert machine.parse_cpuinfo("") == ("", ())


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000", None),
        ("150000 100000", 1.5),
        ("-1 100000", None),
        ("", None),
        ("0 0", None),
    ],
)
def test_a_group_s_share_of_the_processor_is_read(text: str, cores: float | None) -> None:
    assert machine.parse_cpu_max(text) == cores


@pytest.mark.parametrize(
    ("text", "limit"),
    [("max\n", None), ("9223372036854771712\n", None), ("4294967296\n", 4 * GIB), ("", None)],
)
def test_a_group_s_limit_of_memory_is_read(text: str, limit: int | None) -> None:
    assert machine.parse_memory_max(text) == limit


def test_both_forms_of_the_control_group_file_are_read() -> None:
    assert machine.parse_cgroup("0::/system.slice/x.service\n") == {"": "/system.slice/x.service"}
    assert machine.parse_cgroup("4:memory:/a\n1:cpu,cpuacct:/b:c\n") == {
        "memory": "/a",
        "cpu": "/b:c",
        "cpuacct": "/b:c",
    }


@pytest.mark.parametrize(
    ("limit", "cores"),
    [(None, (1, 3, 5)), (2.0, (1, 3)), (1.5, (1,)), (0.5, (1,)), (64.0, (1, 3, 5))],
)
def test_no_more_cores_are_used_than_a_limit_leaves_time_for(
    limit: float | None, cores: tuple[int, ...]
) -> None:
    assert machine.usable((5, 1, 3), limit) == cores


@pytest.mark.parametrize(
    ("cores", "slots", "shares"),
    [(2, 0, 1), (7, 0, 1), (8, 0, 2), (64, 0, 16), (2, 2, 2), (2, 5, 2), (10, 3, 3)],
)
def test_shares_have_cores_of_their_own(cores: int, slots: int, shares: int) -> None:
    devices = machine.cpu_shares(a_machine(cores), slots)
    assert len(devices) == shares
    held = [core for d in devices for core in d.cores]
    assert len(held) == len(set(held)) <= cores
    assert all(len(d.cores) == cores // shares for d in devices)
    assert sum(d.memory_bytes for d in devices) <= 24 * GIB


def test_a_machine_with_gpus_offers_them_and_not_its_processor() -> None:
    devices = machine.devices_of(a_machine(gpus=machine.parse_nvidia_smi(TWO_H200)), 4)
    assert [d.kind for d in devices] == [DeviceKind.CUDA, DeviceKind.CUDA]
    assert [t.name for t in found_tiers(devices)] == ["h200"]


def test_this_machine_is_found_as_it_is(tmp_path: Path) -> None:
    devices = machine.find_devices(Settings(tmp_path, engines=Engines(cpu_slots=1)))
    assert devices == machine.find_devices(Settings(tmp_path, engines=Engines(cpu_slots=1)))
    cores = {core for d in devices for core in d.cores}
    assert cores <= os.sched_getaffinity(0)
    assert all(d.memory_bytes > 0 for d in devices)


def with_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_driver_that_fails_is_named_and_the_processor_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_smi(tmp_path, monkeypatch, "echo 'Failed to initialize NVML: Driver mismatch'; exit 18")
    seen = machine.describe(tmp_path)
    assert seen.gpus == ()
    assert "Driver mismatch" in dict(machine.sentences(seen))["GPU"]


def test_a_driver_that_does_not_answer_means_unknown_and_never_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_smi(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(machine, "_SMI_SECONDS", 0.2)
    with pytest.raises(Unavailable) as caught:
        machine.describe(tmp_path)
    assert caught.value.code == "gpu_driver_silent"


def test_the_probe_needs_nothing_beyond_the_standard_library(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from controlplane.machine import describe, sentences\n"
        "from controlplane.settings import load_settings\n"
        "print(sentences(describe(load_settings().data_dir)))\n"
        "print([m for m in ('yaml', 'pydantic', 'psutil') if m in sys.modules])\n"
    )
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(ROOT)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Memory" in said
    assert said.splitlines()[-1] == "[]"
