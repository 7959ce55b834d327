"""JSON as it goes over the wire: UTF-8, with escapes where a text has a lone surrogate, which UTF-8 cannot carry."""

import json
from typing import Any

from starlette.responses import JSONResponse


def encode_json(value: Any) -> bytes:
    """Return a value as JSON.

    Guarantee: pure.

    Args:
        value: of JSON; its texts may hold lone surrogates.
    """
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


class JsonAnswer(JSONResponse):
    """A response of JSON with any text in it."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return encode_json(content)
