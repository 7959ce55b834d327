"""Serves the inspector's page: one answer, the same for everybody, that loads nothing and contains no data.

It is made at start of ``page.html``, ``style.css`` and the scripts in ``views``, which declare in any order. The page
fetches what it shows with the key that its user enters, so it needs none itself. The policy names its one script and
its one style sheet by their hashes: anything else injected into the page would not run.
"""

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final


def _read(pattern: str) -> str:
    return "".join(path.read_text("utf-8") for path in sorted(Path(__file__).parent.glob(pattern)))


def _hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_STYLE = _read("style.css")
_SCRIPT = f'"use strict";\n{_read("views/*.js")}'
PAGE: Final = _read("page.html").replace("/* style.css */", _STYLE).replace("// views/*.js", _SCRIPT)
"""The page, as HTML."""

PAGE_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": (
        "default-src 'none'; connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'; script-src {_hash_of(_SCRIPT)}; style-src {_hash_of(_STYLE)}"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Headers that tell a browser about the page."""
