"""The messages of MCP: requests, as far as a server without state checks them, and their answers. Pure.

Theory of operation: a request of the revision 2026-07-28 has all that concerns it in ``params._meta``. The older ones
have ``initialize`` before, and what that brings is in the id of the session, which is stored nowhere.
"""

import base64
import binascii
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final, NamedTuple
from uuid import uuid4

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.errors import DurableAgentHostError

Wire = dict[str, Any]
_MODERN: Final = "2026-07-28"
LEGACY: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
VERSIONS: Final = (_MODERN, *LEGACY)
_VERSION_HEADER: Final = "mcp-protocol-version"
_SESSION_HEADER: Final = "mcp-session-id"
_META: Final = "io.modelcontextprotocol/"
TASKS: Final = _META + "tasks"
PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600
NO_METHOD: Final = -32601
INVALID_PARAMS: Final = -32602
FAILED: Final = -32603
_HEADER_MISMATCH: Final = -32020
_MISSING_CAPABILITY: Final = -32021
_VERSION_NOT_SERVED: Final = -32022
_TARGETS: Final = {
    "tools/call": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Method → the parameter that the header ``Mcp-Name`` repeats."""
_CACHED: Final = ("server/discover", "tools/list", "resources/list", "resources/templates/list", "resources/read")
_ASKS: Final = "elicit-"
"""Begins the id of a legacy session whose client can ask a person."""


class RpcError(DurableAgentHostError):
    """An error of JSON-RPC."""

    def __init__(self, code: int, message: str, **data: Any) -> None:
        super().__init__(message)
        self.status = HTTPStatus.NOT_FOUND if code == NO_METHOD else HTTPStatus.BAD_REQUEST
        self._error = {"code": code, "message": message} | ({"data": data} if data else {})

    def response(self, request_id: Any) -> Wire:
        """Make the response to a request."""
        return {"jsonrpc": "2.0", "id": request_id, "error": self._error}


class RpcRequest(NamedTuple):
    """A request.

    Attributes:
        id: repeated in the answer.
        method: as the protocol calls it.
        params: of the method.
        capabilities: of the client.
        is_modern: of the revision 2026-07-28.
    """

    id: Any
    method: str
    params: Wire
    capabilities: Wire
    is_modern: bool = False

    @property
    def has_tasks(self) -> bool:
        """Whether the client takes a task for a result."""
        return TASKS in object_at(self.capabilities, "extensions")

    @property
    def can_ask(self) -> bool:
        """Whether the client can show a form to a person."""
        form = self.capabilities.get("elicitation")
        return form is not None and (not form or "form" in form)

    @property
    def responses(self) -> Wire:
        """The answers of a person, by the names of the questions."""
        return object_at(self.params, "inputResponses")

    def require_tasks(self) -> None:
        """Refuse a client that does not know tasks."""
        if not self.has_tasks:
            required: Wire = {"extensions": {TASKS: {}}}
            raise RpcError(_MISSING_CAPABILITY, f"declare the extension {TASKS}", requiredCapabilities=required)

    def response(self, result: Wire) -> Wire:
        """Make the response with a result."""
        if self.is_modern:
            cached = {"ttlMs": 0, "cacheScope": "private"} if self.method in _CACHED else {}
            result = {"resultType": "complete", **cached, **result, "_meta": {_META + "serverInfo": server_info()}}
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def session_headers(self) -> dict[str, str]:
        """Return the id of a legacy session, which says that its client can ask a person."""
        is_beginning = self.method == "initialize" and self.can_ask
        return {_SESSION_HEADER: f"{_ASKS}{uuid4().hex}"} if is_beginning else {}


@cache
def server_info() -> Wire:
    """Say who answers."""
    return {"name": "durable-agent-host", "version": version("durable-agent-host")}


def read_request(message: Wire, headers: Mapping[str, str]) -> RpcRequest:
    """Check the version of a request, and what its headers repeat.

    Raises:
        RpcError: the version is not served, or something is missing or differs.
    """
    method, params = message.get("method"), object_at(message, "params")
    if not isinstance(method, str) or not isinstance(message["id"], str | int | float):
        raise RpcError(_INVALID_REQUEST, "a request has an id, a text or a number, and the name of a method")
    meta = object_at(params, "_meta")
    requested = meta.get(_META + "protocolVersion")
    header = headers.get(_VERSION_HEADER)
    if requested is None and header != _MODERN:
        _check_version(header or LEGACY[0])
        can_ask = headers.get(_SESSION_HEADER, "").startswith(_ASKS)
        declared: Wire = {"elicitation": {}} if can_ask else object_at(params, "capabilities")
        return RpcRequest(message["id"], method, params, declared)
    capabilities = meta.get(_META + "clientCapabilities")
    if not isinstance(requested, str) or not isinstance(capabilities, dict):
        names = "io.modelcontextprotocol/protocolVersion and io.modelcontextprotocol/clientCapabilities"
        raise RpcError(INVALID_PARAMS, f"'params._meta' needs {names}")
    expected = {_VERSION_HEADER: requested, "mcp-method": method}
    if isinstance(target := params.get(_TARGETS.get(method, "")), str):
        expected["mcp-name"] = target
    for name, value in expected.items():
        if _decode(headers.get(name, "")) != value:
            raise RpcError(_HEADER_MISMATCH, f"the header {name} has to be {value!r}, as in the body")
    _check_version(requested)
    return RpcRequest(message["id"], method, params, object_at(capabilities), is_modern=True)


def _check_version(requested: str) -> None:
    if requested not in VERSIONS:
        message = f"the version {requested!r} is not served; served are {', '.join(VERSIONS)}"
        raise RpcError(_VERSION_NOT_SERVED, message, supported=VERSIONS, requested=requested)


def _decode(header: str) -> str | None:
    """Decode a header; one that is not ASCII is in Base64."""
    if not header.startswith("=?base64?"):
        return header
    try:
        return base64.b64decode(header[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
