"""Serves the inspector's page: one file, the same for everybody, that loads nothing and contains no data.

It fetches what it shows from the public routes with the key that its user enters, so the page itself needs none. The
policy names its one script and its one style sheet by their hashes: anything else injected into the page would not run.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
"""The page, as HTML."""


def _hash_of(element: str) -> str:
    found = re.search(rf"<{element}>(.*?)</{element}>", PAGE, re.DOTALL)
    digest = hashlib.sha256((found[1] if found else "").encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


PAGE_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash_of('script')}",
            f"style-src {_hash_of('style')}",
            "connect-src 'self'",
            "img-src 'self' data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Headers that tell a browser about the page."""
