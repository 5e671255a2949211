"""One page of metrics from several processes' pages. Pure.

Every process declares every metric of ours, and moves only its own: so equal series add up,
and what a process never touched adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

OURS = "slipstream_"


class _Pages(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def merged(pages: Iterable[str]) -> bytes:
    """The metrics of ours on all `pages`, in Prometheus' text format. What a library tells of
    its own process is left out: it means nothing when added up. A page that can't be read is
    skipped."""
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for page in pages:
        try:
            read = [f for f in text_string_to_metric_families(page) if f.name.startswith(OURS)]
        except ValueError:
            continue
        for family in read:
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            sums = values.setdefault(family.name, {})
            for s in family.samples:
                if not s.name.endswith("_created"):
                    key = (s.name, tuple(sorted(s.labels.items())))
                    sums[key] = sums.get(key, 0.0) + s.value
    for name, family in families.items():
        for (sample, labels), value in values[name].items():
            family.add_sample(sample, dict(labels), value)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Pages(families.values()))
    return generate_latest(registry)
