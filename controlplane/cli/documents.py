"""Specs as YAML or JSON text, both ways, with texts kept as the texts they are.

YAML would turn `name: on` into true and `name: 0777` into 511. Here the field decides: what is
a text in a spec stays the letters that stand in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from controlplane.domain.engine_args import ALLOWED_ARGS
from controlplane.errors import Invalid

_MOST_NODES, _DEEPEST = 20_000, 20
_LARGEST = 1_000_000
# A text that may be missing: `null` says so. Of all other texts `null` is four letters.
_TEXT_OR_NOTHING = {
    ("draft_model",), ("revision",), ("hub_token",), ("speculation", "workload"),
    ("scale_down", "after"), ("engine", "version"),
}  # fmt: skip
_TEXT = {
    ("name",), ("model",), ("tier",), ("speculation", "method"), ("speculation", "vocabulary"),
    ("scale_down", "policy"), ("wake", "mode"), ("wake", "deadline"),
}  # fmt: skip
_NOTHING = {"", "~", "null"}
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}
_WHOLE = re.compile(r"[-+]?[0-9]+")
_REAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# What every YAML reader, of 1.1 or 1.2, takes for a text without quotes.
_BARE = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_NOT_BARE = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf", "nan"}


class _Writer(yaml.SafeDumper):
    """Quotes each text that some YAML reader might take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _write_text(writer: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    bare = _BARE.fullmatch(text) is not None and text.lower() not in _NOT_BARE
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style=None if bare else '"')


_Writer.add_representer(str, _write_text)


def write(data: Any) -> str:
    """`data` (of JSON's types) as YAML that any reader gives back unchanged."""
    return yaml.dump(data, Dumper=_Writer, sort_keys=False, width=10_000)


def read(text: str, source: str) -> list[Any]:
    """The documents that `text` holds, JSON or YAML; empty ones are left out. Raises Invalid,
    naming `source`, where it is neither."""
    if len(text) > _LARGEST:
        raise Invalid("file_too_large", f"{source} is larger than any file of specs.")
    try:
        return [json.loads(text)]
    except RecursionError as e:
        raise _too_much(source) from e
    except ValueError:
        pass
    try:
        nodes: list[yaml.Node | None] = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise Invalid(
            "invalid_yaml", f"{source} is no YAML{where}: {e.problem or e.context}."
        ) from e
    except (yaml.YAMLError, ValueError) as e:
        raise Invalid("invalid_yaml", f"{source} holds characters that YAML doesn't allow.") from e
    except RecursionError as e:
        raise _too_much(source) from e
    return list(_documents(nodes, source))


def _documents(nodes: list[yaml.Node | None], source: str) -> Iterator[Any]:
    for node in nodes:
        if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
            continue
        yield _Build(source).value(node, ())


def _too_much(source: str) -> Invalid:
    return Invalid("file_too_large", f"{source} is nested too deeply, or too much.")


class _Build:
    """Values from nodes. Anchors are followed; what multiplies without end is refused."""

    def __init__(self, source: str) -> None:
        self._source, self._count = source, 0

    def value(self, node: yaml.Node, path: tuple[str, ...]) -> Any:
        self._count += 1
        if self._count > _MOST_NODES or len(path) > _DEEPEST:
            raise _too_much(self._source)
        if isinstance(node, yaml.MappingNode):
            return self._object(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(n, (*path, "[]")) for n in node.value]
        text = str(node.value)
        quoted = isinstance(node, yaml.ScalarNode) and node.style in ("'", '"', "|", ">")
        return text if quoted else _scalar(text, path)

    def _object(self, node: yaml.MappingNode, path: tuple[str, ...]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else None
            if name is None or name in made:
                line = key.start_mark.line + 1
                what = "is no text" if name is None else f"{name[:60]!r} stands twice"
                raise Invalid("invalid_yaml", f"{self._source}, line {line}: the key {what}.")
            made[name] = self.value(value, (*path, name))
        return made


def _scalar(text: str, path: tuple[str, ...]) -> Any:
    if path in _TEXT or path[:1] == ("labels",):
        return text
    if path in _TEXT_OR_NOTHING:
        return None if text in _NOTHING else text
    if path[:2] == ("engine", "args") and ALLOWED_ARGS.get(path[-1]) is str:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text) and len(text) < 20:
        return int(text)
    return float(text) if _REAL.fullmatch(text) and len(text) < 40 else text
