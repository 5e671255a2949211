"""What endpoints ask for: the site, the caller, a JSON body, a header that has a grammar."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import Depends, Header, Request, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import ClientDisconnect

from controlplane.api.bodies import malformed, parse_json, read_limited
from controlplane.auth.principals import Principal
from controlplane.errors import FieldError, Forbidden, Invalid
from controlplane.services import keys, sign_ins
from controlplane.services.site import Site

COOKIE = "slipstream_session"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,128}")
_ETAG = re.compile(r'(?:W/)?"([0-9]{1,9})"')

_bearer = HTTPBearer(
    auto_error=False, scheme_name="key", description="An API key, as `slipstream keys` makes them."
)
_cookie = APIKeyCookie(
    name=COOKIE,
    auto_error=False,
    scheme_name="session",
    description="A browser that was signed in with the link of `slipstream open`.",
)


async def site_of(request: Request) -> Site:
    site = request.app.state.site
    if not isinstance(site, Site):
        raise TypeError("this app was built without a site")
    return site


SiteDep = Annotated[Site, Depends(site_of)]


def authenticate(request: Request, site: Site) -> Principal:
    """Who is calling: by key, else by the browser's session. Raises Unauthenticated, and
    Forbidden for a change that another site's page made a signed-in browser send."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return keys.authenticate(site, key.strip())
    session = request.cookies.get(COOKIE)
    if not session:
        raise keys.unauthenticated("This needs an API key.")
    if request.method not in _SAFE_METHODS and not _same_origin(request):
        raise Forbidden(
            "wrong_origin",
            "A browser's change must come from this server's own pages.",
            hint="Programs send Authorization: Bearer KEY instead of the cookie.",
        )
    return sign_ins.authenticate_session(site, session)


def caller(
    request: Request,
    site: SiteDep,
    _bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    _session: Annotated[str | None, Security(_cookie)],
) -> Principal:
    """Who is calling. The two schemes stand in the signature for the documentation."""
    return authenticate(request, site)


Caller = Annotated[Principal, Depends(caller)]


async def json_body(request: Request, site: SiteDep, _by: Caller) -> Any:
    """The body, once the caller is known: strangers' bodies aren't read."""
    limit = site.settings.server.max_body_bytes
    try:
        body = await read_limited(request.stream(), request.headers.get("content-length"), limit)
    except ClientDisconnect as e:
        raise malformed("incomplete_body", "The body ended too early.") from e
    return parse_json(body)


JsonBody = Annotated[Any, Depends(json_body)]


async def idempotency_key(
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            description="1-128 visible characters. Sent again with the same body within a day, "
            "it makes nothing new.",
        ),
    ] = None,
) -> str | None:
    if key is not None and not _IDEMPOTENCY_KEY.fullmatch(key):
        raise _bad_header("Idempotency-Key", "It is 1 to 128 visible ASCII characters.")
    return key


async def if_match(
    tag: Annotated[
        str | None,
        Header(
            alias="If-Match",
            description='The generation that the change was made for, as `"3"`.',
        ),
    ] = None,
) -> int | None:
    """The generation that the caller saw; None where it doesn't matter."""
    if tag is None or tag.strip() == "*":
        return None
    found = _ETAG.fullmatch(tag.strip())
    if found is None:
        raise _bad_header("If-Match", 'It is a generation in quotes, as "3".')
    return int(found[1])


IdempotencyKey = Annotated[str | None, Depends(idempotency_key)]
IfMatch = Annotated[int | None, Depends(if_match)]


def _bad_header(name: str, detail: str) -> Invalid:
    return Invalid(
        "invalid_header",
        f"The header {name} is wrong.",
        hint=detail,
        fields=(FieldError(name, "form", detail),),
    )


def _same_origin(request: Request) -> bool:
    """By host and port: in front of an Ingress the scheme that we see is not the browser's."""
    origin = urlsplit(request.headers.get("origin", ""))
    host = request.headers.get("host", "")
    return origin.scheme in {"http", "https"} and bool(host) and origin.netloc == host
