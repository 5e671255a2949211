"""Train the draft on its target's own answers.

    python -m controlplane.demo_models.recipe.train_draft shrink \
        --target DIR --answers general.jsonl --out DIR
    python -m controlplane.demo_models.recipe.train_draft tune \
        --target DIR --start DIR --answers support.jsonl --mixed-with general.jsonl --out DIR

`shrink` makes a small model out of the target's layers and trains it; `tune` goes on with one
that `shrink` made. Loss is counted on the answer only, never on the prompt.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from controlplane.demo_models.recipe import small_vocabulary

_TOKENS_A_BATCH = 3072
_FOR_CHECKING = 64  # answers kept from training, to see how it goes
_MIXED_ANSWERS = 700
_IGNORED = -100


@dataclass(frozen=True, slots=True)
class Answer:
    prompt: list[int]
    answer: list[int]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.answer)


def read_answers(path: Path) -> list[Answer]:
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [Answer(**json.loads(line)) for line in lines]
    random.shuffle(found)
    return [a for a in found if len(a.answer) > 8]


def shrink(target: Path, layers: list[int], kept: list[int]) -> Any:
    """A Llama of the target's shape with some of its layers and the tokens `kept`."""
    big = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    config = copy.deepcopy(big.config)
    config.vocab_size, config.num_hidden_layers = len(kept), len(layers)
    for name in ("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"):
        setattr(config, name, kept.index(getattr(config, name)))
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: len(layers)]
    small = LlamaForCausalLM(config)
    small.model.embed_tokens.weight.data.copy_(big.model.embed_tokens.weight.data[kept])
    for mine, theirs in enumerate(layers):
        small.model.layers[mine].load_state_dict(big.model.layers[theirs].state_dict())
    small.model.norm.load_state_dict(big.model.norm.state_dict())
    small.tie_weights()
    return small


class Batches:
    """Answers as tensors in the draft's own token numbers, similar lengths together."""

    def __init__(self, kept: list[int], target_vocabulary: int, unknown: int) -> None:
        self._number = torch.full((target_vocabulary,), _IGNORED)
        self._number[torch.tensor(kept)] = torch.arange(len(kept))
        self._unknown = unknown

    def tensors(self, some: list[Answer]) -> tuple[Tensor, Tensor]:
        """Inputs, and what should come next at each place (ignored where nothing should)."""
        width = max(len(a) for a in some)
        inputs = torch.full((len(some), width), self._unknown)
        wanted = torch.full((len(some), width), _IGNORED)
        for row, a in enumerate(some):
            numbers = self._number[torch.tensor(a.prompt + a.answer)]
            size, start = len(numbers), len(a.prompt) - 1
            inputs[row, :size] = torch.where(numbers < 0, self._unknown, numbers)
            wanted[row, start : size - 1] = numbers[start + 1 :]
        return inputs, wanted

    def epoch(self, answers: list[Answer]) -> Iterator[tuple[Tensor, Tensor]]:
        shuffled = random.sample(answers, len(answers))
        for start in range(0, len(shuffled), 256):
            near = sorted(shuffled[start : start + 256], key=len)
            made = list(_full(near))
            random.shuffle(made)
            yield from map(self.tensors, made)


def _full(answers: list[Answer]) -> Iterator[list[Answer]]:
    batch: list[Answer] = []
    for a in answers:  # sorted, so that the newest is the longest
        if batch and len(a) * (len(batch) + 1) > _TOKENS_A_BATCH:
            yield batch
            batch = []
        batch.append(a)
    if batch:
        yield batch


def loss_and_hits(model: Any, inputs: Tensor, wanted: Tensor) -> tuple[Tensor, int, int]:
    """Mean loss over the wanted tokens, how many of them the model puts first, and of how many."""
    here = wanted != _IGNORED
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=inputs, use_cache=False).last_hidden_state[here]
        logits = model.lm_head(hidden)
    loss = functional.cross_entropy(logits.float(), wanted[here])
    return loss, int((logits.argmax(-1) == wanted[here]).sum()), int(here.sum())


def check(model: Any, batches: Batches, answers: list[Answer]) -> float:
    """The share of the target's tokens that the draft would have guessed."""
    model.eval()
    hits = of = 0
    with torch.no_grad():
        for start in range(0, len(answers), 16):
            _, right, all_of_them = loss_and_hits(
                model, *batches.tensors(answers[start : start + 16])
            )
            hits, of = hits + right, of + all_of_them
    model.train()
    return hits / max(1, of)


def train(
    model: Any, batches: Batches, answers: list[Answer], held: list[Answer], args: Any
) -> None:
    """AdamW with a short warm-up and a cosine down, for `args.minutes`."""
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        parameters, lr=args.rate, betas=(0.9, 0.98), weight_decay=args.decay
    )
    began, seconds = time.monotonic(), args.minutes * 60
    epochs = itertools.chain.from_iterable(batches.epoch(answers) for _ in itertools.count())
    for step, (inputs, wanted) in enumerate(epochs, start=1):
        done = (time.monotonic() - began) / seconds
        if done >= 1:
            break
        cosine = 0.5 * (1 + math.cos(math.pi * done)) * 0.97 + 0.03
        for group in optimizer.param_groups:
            group["lr"] = args.rate * min(1.0, step / 40) * cosine
        loss, _, _ = loss_and_hits(model, inputs, wanted)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 100 == 0:
            share = check(model, batches, held)
            print(f"step {step}: loss {loss.item():.3f}, guessed {share:.3f}", flush=True)
    print(f"guessed in the end: {check(model, batches, held):.3f}", flush=True)


def main() -> None:
    args = _arguments()
    torch.manual_seed(0)
    random.seed(0)
    answers = read_answers(args.answers)
    held, rest = answers[:_FOR_CHECKING], answers[_FOR_CHECKING:] or answers
    if args.mixed_with:
        rest += read_answers(args.mixed_with)[:_MIXED_ANSWERS]
    tokenizer = json.loads((args.target / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
    if args.step == "shrink":
        used = itertools.chain.from_iterable(a.prompt + a.answer for a in answers)
        kept = small_vocabulary.choose(tokenizer, used, args.vocabulary)
        model = shrink(args.target, args.layers, kept)
    else:
        small = json.loads((args.start / "tokenizer.json").read_text(encoding="utf-8"))
        ours: dict[str, int] = small["model"]["vocab"]
        kept = [vocabulary[text] for text in sorted(ours, key=ours.__getitem__)]
        model = AutoModelForCausalLM.from_pretrained(args.start, dtype=torch.float32)
    batches = Batches(kept, max(vocabulary.values()) + 1, model.config.unk_token_id)
    train(model, batches, rest, held, args)
    model.to(torch.bfloat16).eval().save_pretrained(args.out)
    small_vocabulary.write_tokenizer(args.target, args.out, kept)
    says = {"vocabulary": "heterogeneous"}
    (args.out / "slipstream.json").write_text(json.dumps(says) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["shrink", "tune"])
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--answers", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="tune: the draft to go on with")
    parser.add_argument("--mixed-with", type=Path, help="tune: some of the earlier answers")
    parser.add_argument("--layers", type=int, nargs="+", default=[0, 12, 29])
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--decay", type=float, default=0.05)
    args = parser.parse_args()
    if args.step == "tune" and args.start is None:
        parser.error("tune needs --start")
    return args


if __name__ == "__main__":
    main()
