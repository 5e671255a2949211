"""Where the server is, and the key for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from controlplane.embedded.front_door import reachable, url_host
from controlplane.embedded.state import RunFolder
from controlplane.errors import Invalid
from controlplane.paths import DataDir
from controlplane.settings import Settings, load_client, load_settings

_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True, slots=True)
class Address:
    """`own` is true for this machine's `up`, which nobody had to name."""

    url: str
    key: str | None = field(repr=False)
    own: bool

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
    key = named.api_key or (own_key(settings) if local else None)
    if key is not None and not (key.isascii() and key.isprintable()):
        raise Invalid(
            "invalid_setting",
            "The API key holds characters that no key has.",
            hint="Check SLIPSTREAM_API_KEY.",
        )
    return Address(url, key, own)


def own_url(settings: Settings) -> str:
    """This machine's front door: where the running `up` said, else where the next one will."""
    folder = RunFolder(settings.data_dir)
    running = folder.read() if folder.holder() is not None else None
    where = running or settings.server
    return f"http://{url_host(reachable(where.host))}:{where.port}"


def own_key(settings: Settings) -> str | None:
    """The key that `up` left for its user."""
    try:
        text = DataDir(settings.data_dir).admin_key.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        text = ""
    return text.strip() or settings.admin_key


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
