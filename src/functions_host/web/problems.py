"""Problem responses of the host itself, each with one sentence.

Source: RFC 9457.
"""

import json
from http import HTTPStatus

from starlette.responses import Response


def problem(status: HTTPStatus, sentence: str) -> Response:
    """Make a response that says what is wrong and what to do."""
    return Response(_body(status, sentence), int(status), media_type="application/problem+json")


def problem_response(status: HTTPStatus, sentence: str) -> bytes:
    """Encode such a response as bytes; the connection closes after it."""
    body = _body(status, sentence)
    head = (
        f"HTTP/1.1 {int(status)} {status.phrase}\r\ncontent-type: application/problem+json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def _body(status: HTTPStatus, sentence: str) -> bytes:
    return json.dumps({"title": status.phrase, "status": int(status), "detail": sentence}).encode()
