"""Signing a browser in: POST /sign-in-links makes a link, GET /sign-in uses it up."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from controlplane.api.dependencies import COOKIE, Caller, SiteDep
from controlplane.api.errors import problems
from controlplane.api.pages import page
from controlplane.api.schemas.others import SignInLink
from controlplane.services import sign_ins

router = APIRouter(tags=["sign-in"])
plain = APIRouter(tags=["sign-in"])
AFTER = "/docs"
_HTML = {"text/html": {"schema": {"type": "string"}}}


@router.post("/sign-in-links", status_code=201, responses=problems(401, 403, 503))
def create_sign_in_link(request: Request, site: SiteDep, by: Caller) -> SignInLink:
    """A link that signs one browser in as the caller, once, within 15 minutes."""
    link = sign_ins.make_link(site, by)
    url = f"{request.url.scheme}://{request.url.netloc}/sign-in?token={link.token}"
    return SignInLink(url=url, expires_at=link.expires_at)


@plain.get(
    "/sign-in",
    status_code=303,
    response_class=RedirectResponse,
    responses={
        303: {"description": "Signed in: on to the pages."},
        410: {"description": "The link was used, or is too old.", "content": _HTML},
        **problems(422, 503),
    },
)
def sign_in(request: Request, site: SiteDep, token: str = "") -> Response:
    """Use up a link: a session cookie, and on to the pages."""
    secret = sign_ins.redeem(site, token)
    if secret is None:
        return HTMLResponse(
            page(
                "This sign-in link no longer works",
                "<p>Each link works once, and for 15 minutes. Ask for a fresh one in a terminal "
                "on the machine where Slipstream runs:</p><pre>slipstream open</pre>",
            ),
            status_code=410,
        )
    answer = RedirectResponse(AFTER, status_code=303)
    answer.set_cookie(
        COOKIE,
        secret,
        max_age=int(sign_ins.SESSION_LASTS.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
        path="/",
    )
    return answer
