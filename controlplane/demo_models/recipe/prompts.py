"""The prompts that the demo draft was trained on, and those that were kept from it."""

from __future__ import annotations

import random
from itertools import product


def _listed(text: str) -> list[str]:
    return text.split(";")


TOPICS = _listed(
    "photosynthesis;black holes;vaccines;inflation;plate tectonics;the water cycle;"
    "machine learning;the Roman Empire;jazz;climate change;volcanoes;the human heart;DNA;"
    "electric cars;meditation;chess;football;gardening;coffee;bread baking;bicycles;trains;"
    "satellites;the Moon;Mars;gravity;magnetism;batteries;solar panels;computers;the internet;"
    "databases;encryption;Python;algorithms;sorting;recursion;robots;photography;painting;"
    "poetry;theatre;animation;swimming;nutrition;sleep;stress;leadership;budgeting;"
    "job interviews;Spanish;Italian food;ancient Egypt;the Renaissance;democracy;ethics;"
    "psychology;statistics;algebra;calculus;chemistry;atoms;evolution;dinosaurs;whales;bees;"
    "forests;oceans;glaciers;hurricanes;rainbows;calendars;bridges;libraries;first aid;"
    "recycling;agriculture;chocolate;salt;honey"
)
QUESTIONS = (
    "Explain {} in simple terms.",
    "What is {}?",
    "Write a short paragraph about {}.",
    "Give me five interesting facts about {}.",
    "Write a short story about {}.",
    "Why is {} important?",
    "List the advantages and disadvantages of {}.",
    "Describe the history of {}.",
    "How does {} work?",
    "What are common misconceptions about {}?",
    "Give three tips related to {}.",
)
PRODUCTS = _listed(
    "laptop;wireless headphones;coffee machine;running shoes;bluetooth speaker;office chair;"
    "electric kettle;smart watch;backpack;desk lamp;vacuum cleaner;mountain bike;yoga mat;"
    "phone case;gaming keyboard;tablet;air fryer;winter jacket;garden hose;camping tent;"
    "rice cooker;robot mower;hair dryer;toaster;monitor;webcam;suitcase;water bottle;blender;"
    "microwave;printer;router;sofa;bookshelf;mattress;sunglasses;perfume set;board game;"
    "toy train;guitar;ring light;power bank;electric scooter;baby stroller;dog bed;fish tank;"
    "tool kit;drill;ladder;paint set"
)
PROBLEMS = _listed(
    "arrived damaged;was delivered late;does not turn on;has a missing part;is the wrong color;"
    "is the wrong size;stopped working after a week;makes a strange noise;was charged twice;"
    "never arrived;has a broken box;came without the manual;overheats;has a scratched surface;"
    "does not match the description;has a dead battery;is too heavy;smells bad;leaks;"
    "cannot be paired with my phone"
)
WISHES = (
    "I want a refund.",
    "I want a replacement.",
    "Please tell me what to do.",
    "Can I return it?",
    "How long will a repair take?",
    "I am very disappointed.",
)
_SUPPORT = "You are a support agent. Write a short polite reply to this customer: 'My {} {}. {}'"
# Every seventh product and problem is kept from training, and only those make held-out prompts.
_KEPT = 7


def general() -> list[str]:
    made = [q.format(t) for t, q in product(TOPICS, QUESTIONS)]
    return _shuffled(made, seed=7)


def support(*, held_out: bool) -> list[str]:
    def ours(words: list[str]) -> list[str]:
        return [w for n, w in enumerate(words) if (n % _KEPT == 0) == held_out]

    made = [_SUPPORT.format(*three) for three in product(ours(PRODUCTS), ours(PROBLEMS), WISHES)]
    return _shuffled(made, seed=11)


def _shuffled(prompts: list[str], seed: int) -> list[str]:
    random.Random(seed).shuffle(prompts)  # noqa: S311 (a fixed order is the point)
    return prompts
