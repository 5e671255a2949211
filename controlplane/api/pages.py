"""The few pages that this process makes itself: plain HTML, no script, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
from html import escape

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
code, pre, .path { font-family: ui-monospace, monospace; font-size: .92em; }
pre { padding: .6rem .8rem; border: 1px solid #8886; border-radius: .4rem; overflow-x: auto; }
h2 { margin-top: 2.4rem; border-bottom: 1px solid #8886; }
details { border: 1px solid #8886; border-radius: .4rem; margin: .5rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; }
.method { display: inline-block; min-width: 4.2rem; font-weight: 700; }
table { border-collapse: collapse; margin: .4rem 0; }
th, td { text-align: left; vertical-align: top; padding: .15rem 1.2rem .15rem 0; }
.soft { opacity: .75; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of every answer: our own style, and no script at all."""


def page(title: str, body: str) -> str:
    """A whole page. `body` is HTML whose texts were escaped where they were put in."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)} - Slipstream</title>'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>"
    )
