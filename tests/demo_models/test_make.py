"""The demo models where no engine is needed: the draft, and what is there already."""

import json
from pathlib import Path

import pytest

from controlplane.demo_models.make import (
    COMPLETE,
    DRAFT,
    TARGET,
    heldout_prompts,
    is_made,
    make_demo_models,
)
from controlplane.demo_models.recipe import prompts
from controlplane.errors import Refused
from controlplane.long_jobs import Progress
from controlplane.paths import DataDir


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    """A data directory where the target is there already."""
    data = DataDir(tmp_path)
    target = data.demo_models / TARGET
    target.mkdir(parents=True)
    (target / COMPLETE).write_text("1\n")
    return data


def test_without_an_engine_the_target_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="needs an installed engine") as refused:
        make_demo_models(DataDir(tmp_path), None)
    assert "engines install" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_the_draft_is_laid_beside_the_target_and_says_that_its_vocabulary_is_its_own(
    data: DataDir,
) -> None:
    _, draft = make_demo_models(data, None)
    assert is_made(data, DRAFT)
    assert json.loads((draft / "slipstream.json").read_text()) == {"vocabulary": "heterogeneous"}
    assert json.loads((draft / "config.json").read_text())["vocab_size"] == 8192
    assert (draft / "model.safetensors").stat().st_mode & 0o777 == 0o644
    assert sorted(f.name for f in data.demo_models.iterdir()) == [TARGET, DRAFT]


def test_a_second_time_nothing_is_done(data: DataDir) -> None:
    make_demo_models(data, None)
    steps: list[Progress] = []
    make_demo_models(data, None, steps.append)
    assert steps == []


def test_an_older_draft_is_replaced_by_the_one_that_comes_with_this_version(data: DataDir) -> None:
    old = data.demo_models / DRAFT
    old.mkdir()
    (old / COMPLETE).write_text("0\n")
    (old / "left-over.bin").touch()
    make_demo_models(data, None)
    assert is_made(data, DRAFT)
    assert not (old / "left-over.bin").exists()


def test_a_draft_without_its_mark_of_completeness_is_made_again(data: DataDir) -> None:
    (data.demo_models / DRAFT).mkdir()
    make_demo_models(data, None)
    assert (data.demo_models / DRAFT / "model.safetensors").exists()


def test_no_held_out_prompt_was_trained_on() -> None:
    held = set(heldout_prompts())
    assert held <= set(prompts.support(held_out=True))
    assert not held & set(prompts.support(held_out=False))
