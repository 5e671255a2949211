from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from controlplane.auth.principals import Action, Role
from controlplane.errors import Invalid, Refused, Unauthenticated
from controlplane.paths import DataDir
from controlplane.services import keys, sign_ins
from controlplane.services.bootstrap import bootstrap
from controlplane.services.site import Site, open_site
from controlplane.settings import Settings, Stores

pytestmark = pytest.mark.system


class NoHints:
    def reconcile(self, deployment_id: str) -> None:
        raise AssertionError(f"nothing here hints {deployment_id}")


@pytest.fixture
def bare(empty_database_url: str, tmp_path: Path) -> Settings:
    """Settings of a machine where nothing was started yet."""
    return Settings(tmp_path / "data", stores=Stores(database_url=empty_database_url))


def site_of(settings: Settings) -> Site:
    return open_site(settings, NoHints(), None)


def key_file(settings: Settings) -> str:
    return DataDir(settings.data_dir).admin_key.read_text().strip()


def test_the_first_start_makes_an_admin_key_that_only_its_user_can_read(bare: Settings) -> None:
    done = bootstrap(bare)
    file = DataDir(bare.data_dir).admin_key
    assert done.new_admin_key == key_file(bare)
    assert file.stat().st_mode & 0o777 == 0o600
    site = site_of(bare)
    principal = keys.authenticate(site, key_file(bare))
    assert (principal.workspace, principal.role) == ("default", Role.ADMIN)
    link = sign_ins.make_link_with_key(site, key_file(bare))
    principal.require(Action.SIGN_IN_OTHERS)
    assert sign_ins.redeem(site, link.token) is not None
    assert sign_ins.redeem(site, link.token) is None
    site.engine.dispose()


def test_a_second_start_goes_on_with_what_there_is(bare: Settings) -> None:
    first, key = bootstrap(bare), key_file(bare)
    again = bootstrap(bare)
    assert again.new_admin_key is None
    assert again.installation == first.installation
    assert key_file(bare) == key


def test_three_that_start_at_once_on_an_empty_database_all_come_up(bare: Settings) -> None:
    done, start = [], threading.Barrier(3)

    def run() -> None:
        start.wait(10)
        done.append(bootstrap(bare))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len({d.installation for d in done}) == 1
    assert len(done) == 3
    assert sum(d.new_admin_key is not None for d in done) == 1


@pytest.mark.parametrize("loss", ["revoked", "file gone", "file torn", "database new"])
def test_a_key_file_that_opens_nothing_is_replaced(bare: Settings, loss: str) -> None:
    bootstrap(bare)
    old, file = key_file(bare), DataDir(bare.data_dir).admin_key
    site = site_of(bare)
    with site.begin() as session:
        if loss == "revoked":
            session.execute(text("UPDATE api_keys SET revoked_at = now()"))
        if loss == "database new":
            session.execute(text("DELETE FROM api_keys"))
    if loss == "file gone":
        file.unlink()
    if loss == "file torn":
        file.write_text(old[:20])
    done = bootstrap(bare)
    assert done.new_admin_key == key_file(bare) != old
    assert keys.authenticate(site, key_file(bare)).role is Role.ADMIN
    site.engine.dispose()


def test_an_operators_key_is_taken_and_shown_to_nobody(bare: Settings) -> None:
    chosen = replace(bare, admin_key="an-operators-own-key")
    done = bootstrap(chosen)
    assert done.new_admin_key is None
    assert key_file(chosen) == "an-operators-own-key"
    site = site_of(chosen)
    assert keys.authenticate(site, "an-operators-own-key").role is Role.ADMIN
    with site.begin() as session:
        session.execute(text("UPDATE api_keys SET revoked_at = now()"))
    bootstrap(chosen)
    with pytest.raises(Unauthenticated):
        keys.authenticate(site, "an-operators-own-key")
    site.engine.dispose()


def test_a_weak_operators_key_is_refused_before_anything_is_made(bare: Settings) -> None:
    with pytest.raises(Invalid) as refused:
        bootstrap(replace(bare, admin_key="changeme"))
    assert refused.value.hint
    assert not DataDir(bare.data_dir).admin_key.exists()


def test_on_a_cluster_no_process_makes_a_second_key(bare: Settings) -> None:
    cluster = replace(bare, driver="kubernetes")
    assert bootstrap(cluster).new_admin_key is not None
    assert bootstrap(cluster).new_admin_key is None
    assert not DataDir(cluster.data_dir).admin_key.exists()


def test_a_key_that_can_not_be_written_down_is_not_made(bare: Settings) -> None:
    bare.data_dir.parent.mkdir(exist_ok=True)
    bare.data_dir.write_text("a file where the folder should be")
    with pytest.raises(Refused) as refused:
        bootstrap(bare)
    assert refused.value.code == "key_file_not_written"
    site = site_of(bare)
    with site.begin() as session:
        assert session.execute(text("SELECT count(*) FROM api_keys")).scalar_one() == 0
    site.engine.dispose()
