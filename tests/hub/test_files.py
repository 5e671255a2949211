"""Which of a model's files an engine needs."""

from __future__ import annotations

import pytest

from controlplane.hub.failures import BadWeights
from controlplane.hub.files import HubFile, wanted_files, wanted_paths
from tests.hub_server.repos import NEEDED, tiny_model


def test_a_usual_repository_gives_its_safetensors_and_what_lies_beside_them() -> None:
    assert wanted_paths(tiny_model()) == NEEDED


def test_shards_come_with_their_index() -> None:
    chosen = wanted_paths(tiny_model(shards=3))
    assert "model.safetensors.index.json" in chosen
    assert sum(p.endswith(".safetensors") for p in chosen) == 3


@pytest.mark.parametrize(
    ("paths", "weights"),
    [
        (["model.safetensors", "pytorch_model.bin", "model.pt"], {"model.safetensors"}),
        (["pytorch_model.bin", "training_args.bin", "optimizer.bin"], {"pytorch_model.bin"}),
        (["pytorch_model.bin", "consolidated.00.pth"], {"pytorch_model.bin"}),
        (["model-1.safetensors", "consolidated.safetensors"], {"model-1.safetensors"}),
        (["consolidated.safetensors"], {"consolidated.safetensors"}),
        (["eagle.pt"], {"eagle.pt"}),
        (["adapter_model.safetensors"], {"adapter_model.safetensors"}),
    ],
)
def test_the_same_weights_are_taken_in_one_form_only(paths: list[str], weights: set[str]) -> None:
    assert wanted_paths([*paths, "config.json"]) == weights | {"config.json"}


@pytest.mark.parametrize(
    "path",
    [
        "modeling_custom.py",
        "sub/tokenization_custom.py",
        "README.md",
        ".gitattributes",
        ".cache/x.json",
        "../outside.json",
        "/etc/x.json",
        "a//b.json",
        "original/params.json",
        "metal/config.json",
        "onnx/config.json",
        "model.gguf",
        "tf_model.h5",
        "flax_model.msgpack",
        "images/figure.png",
        "checkpoint-100/model.safetensors",
    ],
)
def test_what_no_engine_needs_stays_at_the_hub(path: str) -> None:
    assert wanted_paths(["config.json", "model.safetensors", path]) == {
        "config.json",
        "model.safetensors",
    }


@pytest.mark.parametrize(
    "path",
    [
        "tokenizer.model",
        "vocab.txt",
        "qwen.tiktoken",
        "chat_template.jinja",
        "additional_chat_templates/tools.jinja",
        "1_Pooling/config.json",
        "2_Dense/model.safetensors",
        "slipstream.json",
        "preprocessor_config.json",
    ],
)
def test_what_an_engine_reads_beside_the_weights_comes_along(path: str) -> None:
    assert path in wanted_paths(["config.json", "model.safetensors", path])


@pytest.mark.parametrize(
    "paths",
    [
        [],
        ["README.md"],
        ["model.safetensors"],
        ["config.json"],
        ["config.json", "model.gguf"],
        ["config.json", "sub/model.safetensors"],
        ["sub/config.json", "model.safetensors"],
    ],
)
def test_a_repository_that_no_engine_can_load_is_refused(paths: list[str]) -> None:
    with pytest.raises(BadWeights):
        wanted_paths(paths)


def test_a_mistral_layout_without_config_json_is_a_model() -> None:
    paths = {"params.json", "consolidated.safetensors", "tekken.json"}
    assert wanted_paths(paths) == paths


def test_the_hubs_order_is_kept() -> None:
    files = [HubFile(p, 1, p) for p in ("tokenizer.json", "model.safetensors", "config.json")]
    assert list(wanted_files(files)) == files
