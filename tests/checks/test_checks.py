"""The checks find what they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks import lengths, locks

HASH = "    --hash=sha256:" + "0" * 64


@pytest.mark.parametrize(
    "text",
    [
        f"--index-url https://packages.example/simple\na==1 \\\n{HASH}\n",
        f"a @ https://packages.example/a.whl \\\n{HASH}\n",
        "a==1\n",
        f"a>=1 \\\n{HASH}\n",
        "-r other.txt\n",
    ],
)
def test_a_lock_with_an_address_or_without_a_hash_is_found(text: str) -> None:
    assert list(locks.faults_of("x.txt", text))


def test_a_lock_of_pins_and_hashes_is_fine() -> None:
    text = f"a==1 ; python_version < '3.12' \\\n{HASH} \\\n{HASH}\nb-c==2.0 \\\n{HASH}\n"
    assert list(locks.faults_of("x.txt", text)) == []


def test_long_files_and_functions_are_found(tmp_path: Path) -> None:
    room = tmp_path / "worker"
    room.mkdir()
    (room / "long.py").write_text("\n" * lengths.FILE_LINES)
    body = "    pass\n" * lengths.FUNCTION_LINES
    (room / "deep.py").write_text(f"def f():\n{body}")
    (room / "fine.py").write_text("def f():\n    pass\n")
    assert [f.split()[0] for f in lengths.faults(tmp_path)] == [
        "worker/deep.py:1",
        "worker/long.py",
    ]


def test_a_skip_fails_where_every_part_is_meant_to_be(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = (Path(__file__).parents[1] / "conftest.py").read_text(encoding="utf-8")
    pytester.makeconftest(hook)
    pytester.makepyfile("import pytest\ndef test_a(): pytest.skip('no GPU: install one')")
    monkeypatch.setenv("SLIPSTREAM_TEST_STRICT", "1")
    result = pytester.runpytest("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    assert "no GPU: install one" in result.stdout.str()
    monkeypatch.delenv("SLIPSTREAM_TEST_STRICT")
    pytester.runpytest("-p", "no:cacheprovider").assert_outcomes(skipped=1)
