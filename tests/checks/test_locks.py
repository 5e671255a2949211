"""What the lock files must hold."""

from tests.checks.locks import missing


def test_a_package_that_the_project_asks_for_and_the_lock_lacks_is_told() -> None:
    text = "uv==0.13.9 \\\n    --hash=sha256:00\nPyYAML==6.0.4\n"
    wanted = ["uv>=0.13", "pyyaml>=6.0.4", "celery[redis]>=5.7", "uv<0.13"]
    assert list(missing("r.txt", text, wanted)) == [
        "r.txt lacks celery; run make lock",
        "r.txt pins uv 0.13.9, not <0.13",
    ]
