"""Every JSON answer and every event that a test gets over HTTP from an agents' host fits the API's document.

The document leaves room for members of later versions. A test allows none: a member that a type lacks is an error here.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import requests

from durable_agent_host.http.api_document import api_document
from durable_agent_host.turn.turn_events import EVENTS

OPEN = {"ConversationMessage", "Usage"}
"""What may have further members: what is stored by whatever version, and what a model's service counts."""

ORIGINS: set[str] = set()
"""Where the hosts of agents are that tests have started."""


def _close(value: Any, name: str = "") -> Any:
    """Forbid further members in a schema, and in those within it."""
    if isinstance(value, list):
        return [_close(item) for item in value]
    if not isinstance(value, dict):
        return value
    closed = {key: _close(item, key) for key, item in value.items()}
    if isinstance(value.get("properties"), dict) and name not in OPEN:
        closed.setdefault("additionalProperties", False)
    return closed


@cache
def _components() -> Any:
    return _close({"schemas": api_document()["components"]["schemas"]})


@cache
def _validator(pointer: tuple[str | int, ...]) -> Any:
    """Compile the schema at a path of the document."""
    schema: Any = api_document()
    for key in pointer:
        schema = schema[key]
    return jsonschema_rs.validator_for({**_close(schema), "components": _components()}, validate_formats=False)


@cache
def _operations() -> list[tuple[re.Pattern[str], dict[str, Any], str]]:
    return [
        (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), methods, path)
        for path, methods in api_document()["paths"].items()
    ]


def check_event(name: str, data: Any) -> None:
    """Check an event of a stream; one of another version is passed on as it is."""
    if name in EVENTS:
        _check(
            ("components", "schemas", "Event", "oneOf", [*EVENTS].index(name), "properties", "data"),
            data,
            f"event {name}",
        )


def check_response(response: requests.Response) -> None:
    """Check an answer whose body has been read; of other hosts, and of an app's own routes, none is."""
    request = response.request
    url = urlsplit(str(request.url))
    path = url.path.removeprefix("/api")
    if f"{url.scheme}://{url.netloc}" not in ORIGINS or path == url.path:
        return
    operation = next(((methods, name) for pattern, methods, name in _operations() if pattern.fullmatch(path)), None)
    method = str(request.method).lower()
    if operation is None or method not in operation[0] or _is_of_the_host(response):
        return
    methods, template = operation
    where = f"{request.method} {template}: {response.status_code}"
    responses = methods[method]["responses"]
    status = str(response.status_code)
    if status not in responses and response.status_code >= HTTPStatus.BAD_REQUEST:
        status = "default"
    assert status in responses, f"{where} is not described: {response.text[:500]}"
    described = responses[status]
    for name in described.get("headers", {}):
        assert name in response.headers, f"{where} has no header {name}"
    content = described.get("content", {})
    media_type = response.headers.get("content-type", "").partition(";")[0]
    assert media_type in content or "*/*" in content or not response.content, f"{where} is {media_type}"
    if media_type == "text/event-stream":
        for name, data in _events(response.text):
            check_event(name, data)
    elif media_type in content and media_type.endswith("json") and response.content:
        pointer = ("paths", template, method, "responses", status, "content", media_type, "schema")
        _check(pointer, response.json(), where)


def _is_of_the_host(response: requests.Response) -> bool:
    """Whether the Functions host has refused the request itself: its problems have no type.

    An answer to HEAD has no body, but its type of content tells.
    """
    is_json = response.headers.get("content-type", "").partition(";")[0].endswith("json")
    is_ours = is_json and (not response.content or "type" in response.json())
    return response.status_code >= HTTPStatus.BAD_REQUEST and not is_ours


def _check(pointer: tuple[str | int, ...], value: Any, where: str) -> None:
    error = next(_validator(pointer).iter_errors(value), None)
    assert error is None, f"{where} is not as the API's document says: {error}"


def _events(text: str) -> Iterator[tuple[str, Any]]:
    for block in text.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if fields.keys() != {"retry"}:  # the last block of a host that stops
            yield fields["event"], requests.compat.json.loads(fields["data"])


def check_all(send: Callable[..., requests.Response]) -> Callable[..., requests.Response]:
    """Have a session's method `send` wait two minutes at most and check answers; who reads a stream checks it."""

    def send_and_check(session: requests.Session, request: requests.PreparedRequest, **options: Any) -> Any:
        options["timeout"] = options.get("timeout") or 120
        response = send(session, request, **options)
        if not options.get("stream"):
            check_response(response)
        return response

    return send_and_check
