"""JSON in UTF-8; escapes lone surrogates, which UTF-8 cannot encode."""

import json
from typing import Any

from starlette.responses import JSONResponse


def encode_json(value: Any) -> bytes:
    """Return a value as JSON."""
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


class JsonResponse(JSONResponse):
    """A JSON response; strings may contain lone surrogates."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return encode_json(content)
