"""One page of metrics from several processes' pages."""

from prometheus_client.parser import text_string_to_metric_families

from controlplane.gateway.exposition import merged

GATEWAY = """# HELP slipstream_wake_seconds w
# TYPE slipstream_wake_seconds histogram
slipstream_wake_seconds_bucket{le="1.0"} 2.0
slipstream_wake_seconds_bucket{le="+Inf"} 3.0
slipstream_wake_seconds_count 3.0
slipstream_wake_seconds_sum 9.5
# HELP slipstream_gateway_requests_total r
# TYPE slipstream_gateway_requests_total counter
slipstream_gateway_requests_total{deployment="a\\"b",code="200"} 5.0
# HELP process_start_time_seconds s
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e9
"""
WORKER = """# HELP slipstream_wake_seconds w
# TYPE slipstream_wake_seconds histogram
slipstream_wake_seconds_bucket{le="1.0"} 0.0
slipstream_wake_seconds_bucket{le="+Inf"} 0.0
slipstream_wake_seconds_count 0.0
slipstream_wake_seconds_sum 0.0
# HELP slipstream_deployments d
# TYPE slipstream_deployments gauge
slipstream_deployments{phase="ready"} 1.0
"""


def _series(page: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(page.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def test_each_family_stands_once_with_what_every_process_told() -> None:
    page = merged([GATEWAY, WORKER])
    found = _series(page)
    assert found[("slipstream_wake_seconds_count", ())] == 3
    assert found[("slipstream_wake_seconds_bucket", (("le", "+Inf"),))] == 3
    assert found[("slipstream_deployments", (("phase", "ready"),))] == 1
    labels = (("code", "200"), ("deployment", 'a"b'))
    assert found[("slipstream_gateway_requests_total", labels)] == 5
    assert page.count(b"# TYPE slipstream_wake_seconds histogram") == 1


def test_what_a_library_tells_of_its_own_process_is_left_out() -> None:
    assert b"process_start_time" not in merged([GATEWAY, WORKER])


def test_a_page_that_cannot_be_read_is_skipped() -> None:
    assert _series(merged(["{{{ nonsense", WORKER])) == _series(merged([WORKER]))
