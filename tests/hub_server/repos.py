"""What the test hub holds: models with revisions, and tiny ones that look like real ones."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

LFS_FORMS = (".safetensors", ".bin", ".pth", ".pt", ".gguf")


@dataclass(frozen=True)
class File:
    path: str
    content: bytes

    @property
    def is_lfs(self) -> bool:
        return self.path.endswith(LFS_FORMS)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def blob_id(self) -> str:
        head = f"blob {len(self.content)}\0".encode()
        return hashlib.sha1(head + self.content).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.is_lfs else self.blob_id


@dataclass
class Repo:
    """Revisions by commit; branches and tags by name. `gated` wants an accepted token."""

    model: str
    commits: dict[str, dict[str, File]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False

    def commit(self, files: Mapping[str, bytes], ref: str = "main") -> str:
        """A new commit of these files, which `ref` then stands for."""
        made = {path: File(path, content) for path, content in sorted(files.items())}
        text = json.dumps([self.model, len(self.commits), {p: f.etag for p, f in made.items()}])
        name = hashlib.sha1(text.encode()).hexdigest()
        self.commits[name] = made
        self.refs[ref] = name
        return name

    def resolve(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.refs.get(revision)


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def tiny_model(weight_bytes: int = 3_000, shards: int = 1, seed: int = 0) -> dict[str, bytes]:
    """A model's files as a hub has them, with what an engine has no use for."""
    files = {
        ".gitattributes": b"*.safetensors filter=lfs\n",
        "README.md": b"# A tiny model\n",
        "config.json": b'{"architectures": ["LlamaForCausalLM"], "vocab_size": 8192}',
        "generation_config.json": b"{}",
        "tokenizer.json": b'{"model": {}}',
        "tokenizer_config.json": b"{}",
        "chat_template.jinja": b"{{ messages }}",
        "merges.txt": b"a b\n",
        "modeling_tiny.py": b"raise SystemExit('code of a hub was run')\n",
        "pytorch_model.bin": b"a pickle of the same weights",
        "original/consolidated.00.pth": b"the same weights in another form",
        "original/params.json": b"{}",
        "training_args.bin": b"left behind",
    }
    if shards == 1:
        return files | {"model.safetensors": noise(weight_bytes, seed)}
    names = [f"model-{n + 1:05}-of-{shards:05}.safetensors" for n in range(shards)]
    index = {"weight_map": {f"layer.{n}": name for n, name in enumerate(names)}}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    return files | {name: noise(weight_bytes, seed + n) for n, name in enumerate(names)}


# What of a tiny model with one shard an engine needs.
NEEDED = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "merges.txt",
    "model.safetensors",
}
