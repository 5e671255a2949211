"""Files: texts stay texts, numbers stay numbers, and what is no spec is told with its place."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from controlplane.cli.documents import read, write
from controlplane.domain.spec_json import parse_spec, spec_to_json
from controlplane.errors import Invalid

ODD = ["true", "on", "no", "y", "0777", "1e3", "null", "7b-v0.1", "1.5", "0x1f", "1_000",
       "12:30:45", "2026-12-01", "nan", ".inf", "off", "false", "1.0.0", "00",
       "123456789012345678901"]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_a_name_is_the_text_that_stands_there(text: str) -> None:
    [found] = read(
        f"name: {text}\nmodel: o/n\nlabels:\n  a: {text}\nengine: {{args: {{dtype: {text}}}}}", "f"
    )
    assert found["name"] == text
    assert found["labels"] == {"a": text}
    assert found["engine"]["args"]["dtype"] == text


@pytest.mark.parametrize("text", ODD)
def test_every_reader_of_our_yaml_gets_the_texts_back(text: str) -> None:
    written = write({"name": text, "labels": {text: text}, "list": [text]})
    assert yaml.safe_load(written) == {"name": text, "labels": {text: text}, "list": [text]}
    bare = written.splitlines()[0].removeprefix("name: ") == text
    assert not bare or text[0].isalpha(), "what YAML 1.2 might take for a number is quoted"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    )
)
def test_whatever_json_holds_survives_our_yaml(data: Any) -> None:
    assert yaml.safe_load(write({"data": data})) == {"data": data}


def test_numbers_switches_and_nothing_are_what_they_are_elsewhere() -> None:
    [found] = read(
        "name: a1\nmodel: o/n\ntier: cpu\ncontext_length: 4096\ndraft_model: null\nrevision: ~\n"
        "hub_token:\nspeculation: {tokens: 3}\nreplicas: {min: 1, max: 1}\n"
        "engine: {version: 0.32, args: {enforce-eager: true, gpu-memory-utilization: 0.8}}\n",
        "f",
    )
    assert found["context_length"] == 4096
    assert (found["draft_model"], found["revision"], found["hub_token"]) == (None, None, None)
    assert found["speculation"] == {"tokens": 3}
    assert found["engine"]["version"] == "0.32"
    assert found["engine"]["args"] == {"enforce-eager": True, "gpu-memory-utilization": 0.8}


def test_a_number_in_quotes_is_a_text_and_so_refused_where_a_number_belongs() -> None:
    [found] = read('name: a1\nmodel: o/n\ntier: cpu\ncontext_length: "4096"', "f")
    with pytest.raises(Invalid) as told:
        parse_spec(found)
    assert told.value.fields[0].path == "context_length"


@pytest.mark.parametrize(
    "name", [n for n in ODD if len(n) >= 2 and n[0].isalnum() and "_" not in n and ":" not in n]
)
def test_a_written_spec_reads_back_unchanged(name: str) -> None:
    spec = parse_spec(
        {"name": name, "model": "o/n", "tier": name, "labels": {"k": name}, "revision": name}
    )
    [found] = read(write(spec_to_json(spec)), "f")
    assert parse_spec(found) == spec


def test_json_and_several_documents_are_read_too() -> None:
    assert read('{"name": "on"}', "f") == [{"name": "on"}]
    assert [d["name"] for d in read("name: on\n---\n---\nname: no\n...\n", "f")] == ["on", "no"]
    assert read("", "f") == read("---\n", "f") == read("# nothing\n", "f") == []


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{c}: &{c} [{','.join(['*' + p] * 9)}]\n" for p, c in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        "name: [", "a: b: c", "\t- x", "name: 'x", "a: *nowhere", "? [a]\n: b", "name: a\nname: b",
        "x: \x07", BOMB, "a: &a\n  b: *a", "[" * 2000, '{"a":' * 3000, "x" * 1_000_001,
    ],
    ids=lambda t: repr(t[:14]),
)  # fmt: skip
def test_what_is_no_file_of_specs_is_one_sentence(text: str) -> None:
    with pytest.raises(Invalid) as told:
        read(text, "specs.yaml")
    assert "specs.yaml" in told.value.message
    assert len(told.value.message) < 300


def test_a_tag_makes_nothing_but_the_text() -> None:
    assert read("name: !!python/name:os.system on", "f") == [{"name": "on"}]
