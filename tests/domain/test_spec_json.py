"""The spec's JSON: defaults, every rule on a value, and nothing coerced."""

from datetime import timedelta
from typing import Any

import pytest

from controlplane.domain.deployment import Method, ScaleDownPolicy, Vocabulary
from controlplane.domain.spec_json import merge_patch, parse_spec, spec_to_json
from controlplane.errors import Invalid

LEAST: dict[str, Any] = {"name": "hello", "model": "demo/smollm2-135m", "tier": "cpu"}
SEED: dict[str, Any] = {
    "name": "qwen-vl",
    "model": "nm-testing/Qwen2-VL-72B-Instruct-FP8-dynamic",
    "tier": "low-cost",
    "draft_model": "Qwen/Qwen2-7B-Instruct-GPTQ-Int4",
    "speculation": {"method": "auto", "tokens": "auto", "vocabulary": "same", "workload": None},
    "scale_down": {"policy": "idle", "after": "1h"},
    "wake": {"mode": "hold", "deadline": "15m", "max_waiting": 100},
    "replicas": {"min": 1, "max": 1},
    "context_length": None,
    "revision": None,
    "hub_token": None,
    "engine": {"version": None, "args": {}},
    "labels": {},
}


def test_three_fields_are_enough_and_the_rest_has_defaults() -> None:
    spec = parse_spec(LEAST)
    assert spec.speculation.method is Method.AUTO
    assert (spec.scale_down.policy, spec.scale_down.after) == (
        ScaleDownPolicy.IDLE,
        timedelta(hours=1),
    )
    assert spec_to_json(spec) == {**SEED, **LEAST, "draft_model": None}


def test_the_documented_form_reads_back_unchanged() -> None:
    assert spec_to_json(parse_spec(SEED)) == SEED


def test_the_tier_may_be_left_out_where_there_is_a_default_one() -> None:
    assert parse_spec({**LEAST, "tier": None}, default_tier="cpu").tier == "cpu"
    with pytest.raises(Invalid):
        parse_spec({k: v for k, v in LEAST.items() if k != "tier"})


@pytest.mark.parametrize("name", ["true", "on", "no", "0777", "1e3", "null", "7b-v0.1"])
def test_words_that_other_formats_read_as_values_come_back_as_the_names_they_are(name: str) -> None:
    assert spec_to_json(parse_spec({**LEAST, "name": name}))["name"] == name


def test_the_hubs_page_is_turned_into_the_models_id() -> None:
    spec = parse_spec({**LEAST, "model": "https://huggingface.co/Qwen/Qwen2-7B"})
    assert spec.model == "Qwen/Qwen2-7B"


def test_never_takes_no_span() -> None:
    spec = parse_spec({**LEAST, "scale_down": {"policy": "never"}})
    assert spec.scale_down.after is None
    assert spec_to_json(spec)["scale_down"] == {"policy": "never", "after": None}


def test_a_heterogeneous_vocabulary_can_be_asked_for() -> None:
    raw = {**SEED, "speculation": {"vocabulary": "heterogeneous", "tokens": 16}}
    speculation = parse_spec(raw).speculation
    assert (speculation.vocabulary, speculation.tokens) == (Vocabulary.HETEROGENEOUS, 16)


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"name": "Hello"}, "name", "name"),
    ({"name": "a"}, "name", "name"),
    ({"name": True}, "name", "type"),
    ({"name": 7}, "name", "type"),
    ({"name": None}, "name", "required"),
    ({"name": "a" * 10_000}, "name", "name"),
    ({"model": "gpt2"}, "model", "form"),
    ({"model": "org/$(HF_TOKEN)"}, "model", "form"),
    ({"model": "https://evil.example/a/b"}, "model", "form"),
    ({"model": "org/" + "x" * 10_000}, "model", "form"),
    ({"model": ["org/name"]}, "model", "type"),
    ({"draft_model": "demo/smollm2-135m"}, "draft_model", "same_model"),
    ({"draft_model": "../x"}, "draft_model", "form"),
    ({"tier": "Low Cost"}, "tier", "name"),
    ({"speculation": "off"}, "speculation", "type"),
    ({"speculation": {"method": "eagle9"}}, "speculation.method", "choice"),
    ({"speculation": {"method": "draft_model"}}, "speculation.method", "no_draft"),
    ({"speculation": {"method": "ngram"}, "draft_model": "a/b"}, "speculation.method",
     "draft_unused"),
    ({"speculation": {"tokens": 0}}, "speculation.tokens", "range"),
    ({"speculation": {"tokens": 17}}, "speculation.tokens", "range"),
    ({"speculation": {"tokens": "3"}}, "speculation.tokens", "type"),
    ({"speculation": {"tokens": 3.0}}, "speculation.tokens", "type"),
    ({"speculation": {"tokens": True}}, "speculation.tokens", "type"),
    ({"speculation": {"vocabulary": "any"}}, "speculation.vocabulary", "choice"),
    ({"scale_down": {"after": "0s"}}, "scale_down.after", "form"),
    ({"scale_down": {"after": "-1h"}}, "scale_down.after", "form"),
    ({"scale_down": {"after": "9999d"}}, "scale_down.after", "form"),
    ({"scale_down": {"after": 3600}}, "scale_down.after", "type"),
    ({"scale_down": {"policy": "never", "after": "1h"}}, "scale_down.after", "unused"),
    ({"scale_down": {"policy": "sometimes"}}, "scale_down.policy", "choice"),
    ({"wake": {"mode": "drop"}}, "wake.mode", "choice"),
    ({"wake": {"deadline": "forever"}}, "wake.deadline", "form"),
    ({"wake": {"max_waiting": 0}}, "wake.max_waiting", "range"),
    ({"replicas": {"min": 0}}, "replicas.min", "range"),
    ({"replicas": {"min": 2, "max": 1}}, "replicas.max", "range"),
    ({"replicas": {"min": 1, "max": 2}}, "replicas.max", "not_yet"),
    ({"context_length": 0}, "context_length", "range"),
    ({"context_length": 1e3}, "context_length", "type"),
    ({"revision": "../../etc"}, "revision", "form"),
    ({"revision": "a b"}, "revision", "form"),
    ({"hub_token": "hf_abcdefghijkl"}, "hub_token", "not_a_name"),
    ({"engine": {"version": "latest"}}, "engine.version", "form"),
    ({"engine": {"args": {"api-key": "x"}}}, "engine.args.api-key", "unknown_field"),
    ({"engine": {"args": {"dtype": "--host=0"}}}, "engine.args.dtype", "form"),
    ({"engine": {"args": {"dtype": "/etc/x"}}}, "engine.args.dtype", "form"),
    ({"engine": {"args": {"max-num-seqs": "8"}}}, "engine.args.max-num-seqs", "type"),
    ({"engine": {"args": {"max-num-seqs": True}}}, "engine.args.max-num-seqs", "type"),
    ({"labels": {"team": 1}}, "labels.team", "form"),
    ({"labels": {"a b": "x"}}, "labels.a b", "form"),
    ({"labels": {"team": "x" * 64}}, "labels.team", "form"),
    ({"labels": {"team": "a\nb"}}, "labels.team", "form"),
    ({"colour": "red"}, "colour", "unknown_field"),
    ({"speculation": {"k": 3}}, "speculation.k", "unknown_field"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"scale_down": "never"}, "An object such as {policy: never} or"),
        ({"context_length": -5}, "context_length is from 1 to 10000000."),
        ({"engine": {"args": {"port": 99}}}, "port is set by Slipstream, or not allowed here."),
        (
            {"scale_down": {"policy": "idle", "after": "99999999999999h"}},
            "A duration is 30 days at most.",
        ),
    ],
)
def test_a_refusal_says_what_is_expected(change: dict[str, Any], detail: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_spec(LEAST | change)
    assert [f.detail for f in refused.value.fields if f.detail.startswith(detail)]


@pytest.mark.parametrize(("change", "path", "code"), WRONG)
def test_a_wrong_value_is_refused_with_its_place_and_a_code(
    change: dict[str, Any], path: str, code: str
) -> None:
    with pytest.raises(Invalid) as refused:
        parse_spec({**LEAST, **change})
    assert refused.value.code == "invalid_spec"
    assert (path, code) in {(f.path, f.code) for f in refused.value.fields}
    assert refused.value.hint


@pytest.mark.parametrize("raw", [None, [], "spec", 3, True])
def test_what_is_no_object_is_refused(raw: Any) -> None:
    with pytest.raises(Invalid):
        parse_spec(raw)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(Invalid) as refused:
        parse_spec({"name": "X", "model": "y", "wake": {"mode": "z"}, "extra": 1})
    assert {f.path for f in refused.value.fields} == {
        "name", "model", "tier", "wake.mode", "extra",
    }  # fmt: skip


def test_a_fault_never_repeats_what_a_terminal_would_run() -> None:
    with pytest.raises(Invalid) as refused:
        parse_spec({**LEAST, "\x1b[31mred": 1})
    assert all(f.path.isprintable() and f.detail.isprintable() for f in refused.value.fields)


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": {"b": 1}}, {"a": [1]}, {"a": [1]}),
        ({"a": 1}, {}, {"a": 1}),
        ({}, {"a": {"b": None}}, {"a": {}}),
    ],
)
def test_a_patch_merges_as_rfc_7396_says(target: Any, patch: Any, merged: Any) -> None:
    before = repr(target)
    assert merge_patch(target, patch) == merged
    assert repr(target) == before
