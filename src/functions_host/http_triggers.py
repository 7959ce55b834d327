"""HTTP requests in, HTTP responses out: the conversion that the Functions host does for HTTP triggers.

Source: spec sections 2.3 and 2.4.
"""

import json
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from functions_host.invoke import Datum


def full_url(request: Request) -> str:
    """Write the URL of a request as it was sent, escapes included."""
    path = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0] or request.url.path
    query = request.scope.get("query_string", b"").decode("latin-1")
    return f"{request.url.scheme}://{request.url.netloc}{path}{'?' if query else ''}{query}"


def read_request(request: Request, route_values: Mapping[str, str], body: bytes) -> Datum:
    """Turn a request into the value that an HTTP trigger's parameter is decoded from."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    query: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if value:
            query[name] = f"{query[name]},{value}" if name in query else value
    value = {
        "method": Datum(request.method, "string"),
        "url": Datum(full_url(request), "string"),
        "headers": _texts(headers),
        "query": _texts(query),
        "params": _texts(route_values),
        "body": Datum(body, "bytes"),
    }
    return Datum(value, "http")


def _texts(values: Mapping[str, str]) -> dict[str, Datum]:
    return {name: Datum(value, "string") for name, value in values.items()}


def write_response(returned: Any) -> Response:
    """Turn the value that the worker library encoded into a response."""
    if returned is None or returned.value is None:
        return Response(status_code=204)
    if returned.type != "http":
        return _write_text(str(returned.value))
    value = returned.value
    response = Response(_body_bytes(value["body"].value), int(value["status_code"].value))
    for name, header in value["headers"].items():
        if name.lower() != "content-length":
            response.headers[name] = header.value
    for cookie in cast("list[SimpleCookie]", value.get("cookies") or []):
        for morsel in cookie.values():
            response.raw_headers.append((b"set-cookie", morsel.OutputString().encode("latin-1")))
    return response


def _body_bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else bytes(body or b"")


def _write_text(text: str) -> Response:
    """A returned string that is a JSON object with a ``body`` describes a whole response."""
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or "body" not in parsed:
        return Response(text, media_type="text/plain")
    described = cast("dict[str, Any]", parsed)
    body = described["body"]
    status = int(described.get("status") or described.get("statusCode") or 200)
    given = cast("dict[str, Any]", described.get("headers") or {})
    headers = {name: str(value) for name, value in given.items()}
    if isinstance(body, str):
        return Response(body, status, headers, media_type=None if "content-type" in _lower(headers) else "text/plain")
    return Response(json.dumps(body), status, headers, media_type="application/json")


def _lower(headers: Mapping[str, str]) -> set[str]:
    return {name.lower() for name in headers}
