"""Where the server is, and the key for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from controlplane.embedded.front_door import reachable, url_host
from controlplane.embedded.state import RunFolder
from controlplane.errors import Invalid
from controlplane.paths import DataDir
from controlplane.settings import Settings, load_client, load_settings

_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True, slots=True)
class Address:
    """`own` is true for this machine's `up`, which nobody had to name. `key_file` is where the
    key was read, when it was read from a file."""

    url: str
    key: str | None = field(repr=False)
    own: bool
    key_file: Path | None = None

    @property
    def here(self) -> bool:
        """True when no proxy can be on the way."""
        return urlsplit(self.url).hostname in _LOOPBACK

    @property
    def way_out(self) -> str:
        """What to do when nothing answers there."""
        if self.own:
            from controlplane.embedded.console import command

            return f"Start it: {command('up')}. For a server elsewhere set SLIPSTREAM_URL."
        return "Check SLIPSTREAM_URL, and whether the server there runs."


def find() -> Address:
    """SLIPSTREAM_URL and SLIPSTREAM_API_KEY where set, else what `up` left on this machine.
    This machine's own admin key goes to this machine only."""
    named = load_client()
    settings = load_settings()
    url = _checked(named.url) if named.url else own_url(settings)
    own = named.url is None
    local = own or urlsplit(url).hostname in _LOOPBACK
    file = DataDir(settings.data_dir).admin_key
    filed = _in(file) if local and not named.api_key else None
    key = named.api_key or filed or (settings.admin_key if local else None)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise Invalid(
            "invalid_setting",
            "The API key holds characters that no key has.",
            hint="Check SLIPSTREAM_API_KEY.",
        )
    return Address(url, key, own, file if filed else None)


def own_url(settings: Settings) -> str:
    """This machine's front door: where the running `up` said, else where the next one will."""
    folder = RunFolder(settings.data_dir)
    running = folder.read() if folder.holder() is not None else None
    where = running or settings.server
    return f"http://{url_host(reachable(where.host))}:{where.port}"


def _in(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
        parts.port  # noqa: B018 (raises for one that is none)
    except ValueError:
        right = False
    if not right or parts.query or parts.fragment or " " in url:
        raise Invalid(
            "invalid_setting",
            "SLIPSTREAM_URL must be a server's address.",
            hint="As http://127.0.0.1:8400 or https://llm.example.org.",
        )
    return url.rstrip("/")
