"""HTTP triggers: converts requests and responses as the Functions host does.

Source: azure-functions-host, and the HTTP converters of azure-functions 1.25.
"""

import re
from collections.abc import Mapping
from http.cookies import SimpleCookie
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from functions_host.app.bindings import UNSUPPORTED_KIND
from functions_host.app.invoker import Datum
from functions_host.engine.durable_functions import Raised

_LOWEST_STATUS = 200
_HIGHEST_STATUS = 999
_BODILESS = {204, 205, 304}
_FRAMING = {"content-length", "transfer-encoding"}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class ResponseError(ValueError):
    """An invalid response; the message names the error."""


def full_url(request: Request) -> str:
    """Return the URL of a request as sent, escapes included."""
    return f"{request.url.scheme}://{request.url.netloc}{path_and_query(request)}"


def path_and_query(request: Request) -> str:
    """Return path and query of a request as sent, escapes included."""
    path = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0] or request.url.path
    query = request.scope.get("query_string", b"").decode("latin-1")
    return f"{path}{'?' if query else ''}{query}"


def joined_headers(request: Request) -> dict[str, str]:
    """Return the headers of a request; those that came more than once are joined by commas."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def read_request(request: Request, route_values: Mapping[str, str], body: bytes) -> Datum:
    """Encode a request as the value of an HTTP trigger's parameter."""
    headers = joined_headers(request)
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


def write_failure(failure: Raised) -> Response:
    """Return the response of a failed function: shows the host's own refusal, but no exception of the app."""
    if failure.kind == UNSUPPORTED_KIND:
        return Response(f"{failure.message}\n", 500, media_type="text/plain")
    return Response(status_code=500)


def write_response(return_value: Any) -> Response:
    """Convert a value encoded by the worker library to a response.

    Raises:
        ResponseError: the value is not a valid HTTP response.
    """
    if return_value is None or return_value.value is None:
        return Response(status_code=204)
    if return_value.type != "http":
        return Response(str(return_value.value), media_type="text/plain")
    value = return_value.value
    headers = {str(name): str(header.value) for name, header in value["headers"].items()}
    response = _make(_body_bytes(value["body"].value), str(value["status_code"].value), headers)
    for cookie in cast("list[SimpleCookie]", value.get("cookies") or []):
        for morsel in cookie.values():
            text = morsel.OutputString()
            if not _HEADER_VALUE.fullmatch(text):
                raise ResponseError(f"the cookie {morsel.key!r} has a character that HTTP does not allow")
            response.raw_headers.append((b"set-cookie", text.encode("latin-1")))
    return response


def _make(body: bytes, status_text: str, headers: Mapping[str, str]) -> Response:
    """Reject values that the server cannot send, and header injection."""
    status = int(status_text) if status_text.isascii() and status_text.isdigit() else 0
    if not _LOWEST_STATUS <= status <= _HIGHEST_STATUS:
        raise ResponseError(f"the response has the status {status_text!r}, which is not within 200 to 999")
    response = Response(b"" if status in _BODILESS else body, status)
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ResponseError(f"the response has the header name {name!r}, which HTTP does not allow")
        if not _HEADER_VALUE.fullmatch(value):
            raise ResponseError(
                f"the response's header {name!r} has a character that HTTP does not allow: line breaks and other "
                "controls, and what is not Latin-1"
            )
        if name.lower() not in _FRAMING:
            response.headers[name] = value.strip()
    return response


def _body_bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else bytes(body or b"")
