"""What names a model, and what doesn't."""

import pytest

from controlplane.domain.model_refs import ModelSource, parse_model_ref


@pytest.mark.parametrize(
    ("text", "normal", "source"),
    [
        ("Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-72B-Instruct", ModelSource.HUB),
        ("https://huggingface.co/Qwen/Qwen2-7B", "Qwen/Qwen2-7B", ModelSource.HUB),
        ("https://huggingface.co/Qwen/Qwen2-7B/", "Qwen/Qwen2-7B", ModelSource.HUB),
        ("demo/smollm2-135m", "demo/smollm2-135m", ModelSource.DEMO),
        ("local/our_model.v2", "local/our_model.v2", ModelSource.LOCAL),
        ("01-ai/Yi", "01-ai/Yi", ModelSource.HUB),
    ],
)
def test_a_model_is_named_by_id_or_by_its_page(text: str, normal: str, source: ModelSource) -> None:
    ref = parse_model_ref(text)
    assert (str(ref), ref.source) == (normal, source)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gpt2",
        "a/b/c",
        "/etc/passwd",
        "../weights",
        "org/..",
        "org/a..b",
        "org/.hidden",
        "-org/name",
        "org/name-",
        "org/$(HF_TOKEN)",
        "org/{{7*7}}",
        "org/na me",
        "org/name\n",
        "org/name\x00",
        "org/na\x1bme",
        "örg/name",
        "https://example.com/org/name",
        "https://huggingface.co.evil.example/org/name",
        "https://huggingface.co@evil.example/org/name",
        "http://huggingface.co/org/name",
        "https://huggingface.co/org/name?x=1",
        "https://huggingface.co/org/name/tree/main",
        "file:///etc/passwd",
        "org/" + "a" * 10_000,
    ],
)
def test_everything_else_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_model_ref(text)
    assert len(str(refused.value)) < 100
    assert str(refused.value).isprintable()
