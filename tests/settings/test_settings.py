"""What is wrong in the environment is one sentence that names the variable."""

from __future__ import annotations

import pytest

from controlplane.errors import Invalid, Kind
from controlplane.settings import load_settings

HOME = {"HOME": "/nowhere"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLIPSTREAM_LOG_LEVEL", "LOUD"),
        ("SLIPSTREAM_DRIVER", "remote"),
        ("SLIPSTREAM_HUB_ENDPOINT", "huggingface.co"),
        ("SLIPSTREAM_HUB_ENDPOINT", "ftp://huggingface.co"),
        ("SLIPSTREAM_HUB_ENDPOINT", "http://"),
        ("SLIPSTREAM_HUB_ENDPOINT", "http://hub:no-port"),
        ("SLIPSTREAM_START_TIMEOUT", "inf"),
        ("SLIPSTREAM_START_TIMEOUT", "nan"),
        ("SLIPSTREAM_START_TIMEOUT", "1e30"),
        ("SLIPSTREAM_START_TIMEOUT", "soon"),
        ("SLIPSTREAM_SETTLE_SECONDS", "-1"),
        ("SLIPSTREAM_PORT", "0"),
        ("SLIPSTREAM_PORT", "65536"),
        ("SLIPSTREAM_PORT", "http"),
        ("SLIPSTREAM_API_PORT", "99999"),
        ("SLIPSTREAM_LOG_BYTES", "1"),
        ("SLIPSTREAM_DATABASE_URL", "mysql://db/x"),
        ("SLIPSTREAM_REDIS_URL", "amqp://broker"),
        ("SLIPSTREAM_REDIS_URL", "redis://broker:none/0"),
        ("SLIPSTREAM_REDIS_URL", "redis://"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(name: str, value: str) -> None:
    with pytest.raises(Invalid) as caught:
        load_settings({**HOME, name: value})
    assert caught.value.kind is Kind.INVALID
    assert caught.value.message.startswith(name)
    assert caught.value.message.count(".") == 1 or "0.05" in caught.value.message


def test_right_values_of_any_spelling_are_taken() -> None:
    seen = load_settings(
        {
            **HOME,
            "SLIPSTREAM_LOG_LEVEL": "debug",
            "SLIPSTREAM_HUB_ENDPOINT": "https://[::1]:8443/hub/",
            "SLIPSTREAM_PORT": "65535",
            "SLIPSTREAM_SETTLE_SECONDS": "0",
            "SLIPSTREAM_HELD_BYTES": str(10**12),
        }
    )
    assert seen.log_level == "DEBUG"
    assert seen.hub.endpoint == "https://[::1]:8443/hub"
    assert seen.server.port == 65_535
    assert seen.traffic.settle == 0
    assert seen.gateway.held_bytes == 10**12


def test_an_empty_variable_is_as_good_as_none() -> None:
    empty = dict.fromkeys(("SLIPSTREAM_PORT", "SLIPSTREAM_LOG_LEVEL", "HF_TOKEN"), " ")
    assert load_settings({**HOME, **empty}) == load_settings(HOME)


def test_a_tiers_file_is_looked_at_only_when_tiers_are_wanted() -> None:
    told = {**HOME, "SLIPSTREAM_TIERS_FILE": "/nowhere/tiers.yaml"}
    assert load_settings(told, with_tiers=False) == load_settings(HOME)
    with pytest.raises(Invalid, match="tiers file"):
        load_settings(told)
