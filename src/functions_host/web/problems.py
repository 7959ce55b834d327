"""Problem responses of the host itself, each with one sentence.

Source: RFC 9457.
"""

import json
from http import HTTPStatus

from starlette.responses import Response


def problem(status: HTTPStatus, sentence: str) -> Response:
    """Make a response that says what is wrong and what to do."""
    body = json.dumps({"title": status.phrase, "status": int(status), "detail": sentence})
    return Response(body, int(status), media_type="application/problem+json")
