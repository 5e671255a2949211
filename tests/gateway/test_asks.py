from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.answers import Answered
from controlplane.gateway.asks import read_ask


def test_only_model_and_stream_are_read_and_the_body_stays_as_it_is() -> None:
    body = b' {"x": {"model": "inner", "model": "twice"}, "mod\\u0065l": "a", "stream": true} '
    ask = read_ask(body)
    assert (ask.model, ask.stream, ask.body) == ("a", True, body)
    assert "inner" not in repr(ask)


@pytest.mark.parametrize("stream", ["false", "null", "1", '"true"'])
def test_only_true_asks_for_a_stream(stream: str) -> None:
    assert read_ask(f'{{"model": "a", "stream": {stream}}}'.encode()).stream is False


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"\xef\xbb\xbf{}", "invalid_json"),
        ('{"model": "a"}'.encode("utf-16"), "invalid_json"),
        (b'{"model": "a", "n": ' + b"9" * 5000 + b"}", "invalid_json"),
        (b'{"model": "a", "n": Infinity}', "invalid_json"),
        (b'{"model": "a"} {}', "invalid_json"),
        (b'[["model", "a"]]', "invalid_json"),
        (b'"model"', "invalid_json"),
        (b'{"model": ""}', "invalid_model"),
        (b'{"model": ["a"]}', "invalid_model"),
        (b'{"model": null}', "missing_model"),
        (b'{"model": "a", "\\u006dodel": "a"}', "duplicate_field"),
        (b'{"model": "a", "stream": false, "stream": true}', "duplicate_field"),
    ],
)
def test_what_an_engine_could_read_in_another_way_is_refused(body: bytes, code: str) -> None:
    with pytest.raises(Answered) as e:
        read_ask(body)
    assert (e.value.answer.status, e.value.answer.code) == (400, code)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_and_never_crash(body: bytes) -> None:
    read = _read_or_none(body)
    assert read is None or json.loads(body)["model"] == read


def _read_or_none(body: bytes) -> str | None:
    try:
        return read_ask(body).model
    except Answered:
        return None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), _JSON), st.text(min_size=1))
def test_the_model_is_what_any_json_reader_reads(rest: dict[str, object], model: str) -> None:
    body = json.dumps({**rest, "stream": True, "model": model}).encode()
    assert (read_ask(body).model, read_ask(body).stream) == (model, True)
