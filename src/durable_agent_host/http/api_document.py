"""The API as an OpenAPI document, made of the table of routes and of the types of answers and events.

The schema of a body of type ``text/event-stream`` is that of each frame of the stream, ``components/schemas/Frame``:
OpenAPI 3.1 says nothing of streams, and so do tools and OpenAPI 3.2 describe them. The text in its field ``data`` is
the JSON of the ``data`` of ``components/schemas/Event``, of which generators make types.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from durable_agent_host.codec.log_entry import encode_compact
from durable_agent_host.codec.strict_json import parse_strict
from durable_agent_host.http.problem_details import PROBLEM
from durable_agent_host.http.request_handling import Parameter, Route, RoutePart
from durable_agent_host.http.routes import ROUTES
from durable_agent_host.http.sse import CONTENT_TYPE as EVENTS
from durable_agent_host.turn import turn_events
from durable_agent_host.turn.turn_events import ProblemWire

_JSON: Final = "application/json"
_MODE: Final = "validation"
_WORKFLOWS: Final = parse_strict(Path(__file__).with_name("workflow_routes.json").read_text())
"""The routes that upstream serves, with their schemas."""
_UNROUTED: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "Of the Functions host, which cannot read the path.",
}
_PROBLEMS: Final = (400, 403, 404, 413, 429, 500, 503, 507)
"""Statuses of problems that every route may answer with; routes of a session also with 409."""
_KEY_NEEDED: Final[Mapping[str, Any]] = {"description": "The host asks for a key."}
_PATH_PARAMETERS: Final[Mapping[str, str]] = {
    "agent": "The agent's name.",
    "session": "The session's id.",
    "turn": "The turn's id.",
    "file": "The file's id.",
    "call": "The name of a request to the model's service.",
    "token": "The token of a deferred call.",
    "workflow": "The workflow's name.",
    "run": "The id of a run of the workflow.",
}

_SECURITY_SCHEMES: Final[Mapping[str, Any]] = {
    "key": {
        "type": "apiKey",
        "in": "header",
        "name": "x-functions-key",
        "description": "A key of the function app, unless the app or the host asks for none.",
    },
}


class _Schemas(GenerateJsonSchema):
    """Schemas whose members have no titles: they would repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


def format_api_document(url: str, parts: frozenset[RoutePart]) -> str:
    """Return the document of an app with some parts, as it is served at a URL."""
    base = url.partition("?")[0].removesuffix("/openapi.json")
    return encode_compact({**api_document(parts), "servers": [{"url": base}]})


@cache
def api_document(parts: frozenset[RoutePart] = frozenset(get_args(RoutePart))) -> Mapping[str, Any]:
    """Return the OpenAPI document of the routes of an app with some parts, by default all, without servers."""
    routes = [route for route in ROUTES if route.part in parts]
    kinds = _list_types(routes)
    inputs: list[tuple[int, JsonSchemaMode, TypeAdapter[Any]]]
    inputs = [(index, _MODE, TypeAdapter(kind)) for index, kind in enumerate(kinds)]
    template = "#/components/schemas/{model}"
    schemas, definitions = TypeAdapter.json_schemas(inputs, ref_template=template, schema_generator=_Schemas)
    builder = _OperationBuilder([(kind, schemas[index, _MODE]) for index, kind in enumerate(kinds)])
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(f"/{route.template}", {})[route.method.lower()] = builder.build(route)
    schemas_by_name = dict(definitions["$defs"])
    if "workflows" in parts:
        paths |= _WORKFLOWS["paths"]
        schemas_by_name |= _WORKFLOWS["schemas"]
    event = {
        "description": "An event of a stream, with `data` parsed. `id` is its offset in the turn's log.",
        "oneOf": [builder.event(name, rule.data) for name, rule in turn_events.EVENTS.items()],
    }
    text = builder.schema(str)
    fields = {"id": text, "event": text, "data": text}
    frame = {"type": "object", "properties": fields, "required": [*fields]}
    document = {
        "openapi": "3.1.1",
        "info": {
            "title": "durable-agent-host",
            "version": version("durable-agent-host"),
            "description": "Durable sessions of agents. Ignore members that you do not know: versions may add some.",
        },
        "paths": paths,
        "components": {
            "schemas": {**schemas_by_name, "Event": event, "Frame": frame},
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }
    return parse_strict(encode_compact(document).replace('Wire"', '"'))


def _list_types(routes: Sequence[Route]) -> Sequence[Any]:
    kinds: list[Any] = [ProblemWire, str, *(rule.data for rule in turn_events.EVENTS.values())]
    for route in routes:
        kinds += [parameter.type for parameter in route.parameters]
        bodies = (route.bodies, *route.replies.values())
        kinds += [kind for body in bodies for kind in body if not isinstance(kind, str)]
    return kinds


class _OperationBuilder:
    """Describes routes.

    Args:
        schemas: of all types.
    """

    def __init__(self, schemas: Sequence[tuple[Any, Mapping[str, Any]]]) -> None:
        self._schemas = schemas

    def build(self, route: Route) -> Mapping[str, Any]:
        """Describe a route."""
        problems = (*_PROBLEMS, *route.problems, *([HTTPStatus.CONFLICT] if "{session}" in route.template else []))
        bodies: dict[int, Sequence[Any]] = {**dict.fromkeys(problems, (ProblemWire,)), **route.replies}
        is_public = route.is_open
        responses = {str(int(status)): self._response(route, status, bodies[status]) for status in sorted(bodies)}
        operation: dict[str, Any] = {
            "operationId": route.name,
            "summary": route.summary,
            "parameters": [
                *(
                    {"name": name, "in": "path", "required": True, "description": meaning, "schema": self.schema(str)}
                    for name, meaning in _PATH_PARAMETERS.items()
                    if f"{{{name}}}" in route.template
                ),
                *map(self._parameter, route.parameters),
            ],
            "responses": responses if is_public else {**responses, "401": _KEY_NEEDED},
            "security": [{}] if is_public else [{}, {"key": []}],
        }
        if route.bodies:
            operation["requestBody"] = {"content": self._content(route.bodies, _JSON)}
        return operation

    def event(self, name: str, data: Any) -> Mapping[str, Any]:
        """Describe an event."""
        members = {"id": self.schema(str), "event": {"const": name}, "data": {"type": "object", **self.schema(data)}}
        return {"title": name, "type": "object", "properties": members, "required": [*members]}

    def schema(self, kind: Any) -> Mapping[str, Any]:
        """Return the schema of a type."""
        return next(schema for other, schema in self._schemas if other == kind)

    def _parameter(self, parameter: Parameter) -> Mapping[str, Any]:
        name, kind, meaning, position = parameter
        return {"name": name, "in": position, "description": meaning, "schema": self.schema(kind)}

    def _response(self, route: Route, status: int, body: Sequence[Any]) -> Mapping[str, Any]:
        response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if headers := self._headers(route, status):
            response["headers"] = headers
        if body:
            response["content"] = self._body(status, body)
        return response

    def _body(self, status: int, body: Sequence[Any]) -> Mapping[str, Any]:
        unrouted = {_JSON: {"schema": _UNROUTED}} if status == HTTPStatus.NOT_FOUND else {}
        return {**self._content(body, PROBLEM if status >= HTTPStatus.BAD_REQUEST else _JSON), **unrouted}

    def _headers(self, route: Route, status: int) -> Mapping[str, Any]:
        names: tuple[str, ...] = ()
        is_run = route.name == "http-run"
        if status < HTTPStatus.MULTIPLE_CHOICES and "{file}" not in route.template:
            names += ("x-ms-session-id", "x-ms-thread-id") if is_run or "{session}" in route.template else ()
            names += ("x-ms-turn-id",) if is_run or "{turn}" in route.template else ()
        return {name: {"required": True, "schema": self.schema(str)} for name in names}

    def _content(self, body: Sequence[Any], json_type: str) -> Mapping[str, Any]:
        kinds = [self.schema(kind) for kind in body if not isinstance(kind, str)]
        content: dict[str, Any] = {kind: {"schema": {}} for kind in body if isinstance(kind, str)}
        if EVENTS in content:
            content[EVENTS] = {"schema": {"$ref": "#/components/schemas/Frame"}}
        if kinds:
            content[json_type] = {"schema": kinds[0] if len(kinds) == 1 else {"anyOf": kinds}}
        return content
