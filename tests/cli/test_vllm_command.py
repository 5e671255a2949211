"""vllm serve lines, read into specs."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from controlplane.cli.vllm_command import read_command
from controlplane.domain.spec_json import parse_spec
from controlplane.errors import Invalid
from tests.cli.conftest import Cli

LINES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("vllm serve Qwen/Qwen2-7B", {"name": "qwen2-7b", "model": "Qwen/Qwen2-7B"}, set()),
    (
        "vllm serve --model o/n --served-model-name My_Model other --max-model-len 8192",
        {"name": "my_model", "model": "o/n", "context_length": 8192},
        {"--served-model-name"},
    ),
    (
        "vllm serve o/nn --max-model-len=32k",
        {"name": "nn", "model": "o/nn", "context_length": 32_000},
        set(),
    ),
    (
        "vllm serve o/nn --max_model_len 32K",
        {"name": "nn", "model": "o/nn", "context_length": 32_768},
        set(),
    ),
    (
        ("vllm serve o/nn --speculative-config "
        '\'{"model": "o/draft", "num_speculative_tokens": 5, "draft_tensor_parallel_size": 1}\''),
        {"name": "nn", "model": "o/nn", "draft_model": "o/draft", "speculation": {"tokens": 5}},
        {"speculative-config.draft_tensor_parallel_size"},
    ),
    (
        ("vllm serve o/nn --speculative-config.method ngram "
         "--speculative-config.num_speculative_tokens 4"),
        {"name": "nn", "model": "o/nn", "speculation": {"method": "ngram", "tokens": 4}},
        set(),
    ),
    (
        ("vllm serve o/nn --enforce-eager --no-enable-prefix-caching --dtype bfloat16 "
        "--gpu-memory-utilization 0.8 --max-num-seqs=16 --revision v1.0"),
        {
            "name": "nn",
            "model": "o/nn",
            "revision": "v1.0",
            "engine": {
                "args": {
                    "enforce-eager": True,
                    "enable-prefix-caching": False,
                    "dtype": "bfloat16",
                    "gpu-memory-utilization": 0.8,
                    "max-num-seqs": 16,
                }
            },
        },
        set(),
    ),
    (
        ("CUDA_VISIBLE_DEVICES=0 /opt/bin/vllm serve --trust-remote-code o/nn -tp 2 --port 8000 "
        "--api-key SECRET -O3 --headless --made-up thing"),
        {"name": "nn", "model": "o/nn"},
        {
            "CUDA_VISIBLE_DEVICES",
            "--trust-remote-code",
            "--tensor-parallel-size",
            "--port",
            "--api-key",
            "--optimization-level",
            "--headless",
            "--made-up",
        },
    ),
    (
        "python3 -m vllm.entrypoints.openai.api_server --model o/nn",
        {"name": "nn", "model": "o/nn"},
        set(),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("line", "spec", "left_out"), LINES, ids=lambda x: str(x)[:40])
def test_a_vllm_serve_line_becomes_a_spec(
    line: str, spec: dict[str, Any], left_out: set[str]
) -> None:
    reading = read_command(shlex.split(line))
    assert reading.spec == spec
    assert {name for name, _ in reading.left_out} == left_out
    parse_spec(reading.spec, default_tier="cpu")


@pytest.mark.parametrize(
    "line",
    ["", "vllm", "vllm bench", "rm -rf /", "vllm serve", "vllm serve o/nn --speculative-config {"],
)
def test_what_is_no_such_line_is_refused(line: str) -> None:
    with pytest.raises(Invalid):
        read_command(shlex.split(line))


def test_import_prints_a_file_on_stdout_and_never_a_key(cli: Cli) -> None:
    ended = cli("import", "--", "vllm", "serve", "o/nn", "--api-key", "SECRET", "--port=1")
    assert ended.code == 0
    assert ended.out == "name: nn\nmodel: o/nn\n"
    assert "Left out: --api-key" in ended.err
    assert "SECRET" not in ended.err
    assert cli("import", "vllm serve o/nn --max-model-len 10").out.endswith("context_length: 10\n")
    assert cli("import", "vllm serve 'o/nn").code == 2
