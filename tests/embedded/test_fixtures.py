"""The stores that other tests stand on."""

import pytest
import redis
from kombu import Connection
from sqlalchemy import text

from controlplane.persistence.session import make_engine
from controlplane.settings import Settings

pytestmark = pytest.mark.system


def test_each_test_has_a_migrated_database_of_its_own(settings: Settings) -> None:
    engine = make_engine(settings, "test")
    with engine.begin() as connection:
        tables = connection.execute(text("SELECT count(*) FROM deployments")).scalar_one()
        assert tables == 0
        assert connection.execute(text("SHOW server_version_num")).scalar_one() >= "180000"
    engine.dispose()


def test_redis_py_and_kombu_reach_the_broker_by_the_spellings_that_settings_give(
    settings: Settings,
) -> None:
    assert settings.stores.redis_url is not None
    with redis.Redis.from_url(settings.stores.redis_url) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        with Connection(settings.stores.broker_url) as connection:
            with connection.SimpleQueue("probe") as queue:
                queue.put("hint")
        assert client.llen("probe") == 1
