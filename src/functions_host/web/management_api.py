"""The Durable Task management API, for the app's own client and for other callers.

One set of routes under ``/runtime/webhooks/durabletask`` serves both.

Source: ``HttpApiHandler.cs`` of azure-functions-durable-extension 2.13.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from functions_host.app.client_binding import WEBHOOK_PATH, ClientAddresses, management_urls
from functions_host.engine.client_input import read_json, read_number, read_seconds, read_time
from functions_host.engine.database import StoreError, when_unlocked
from functions_host.engine.entities import parse_entity_id
from functions_host.engine.queries import InstanceFilter, list_entities, list_instances
from functions_host.engine.sqlite_store import SqliteStore
from functions_host.engine.status_wire import encode_status, encode_status_history, encode_stored, format_second
from functions_host.engine.store_records import InstanceRecord
from functions_host.engine.task_hub import (
    BadRequestError,
    ConflictError,
    InstanceCompletedError,
    InstanceNotFoundError,
    TaskHub,
    TaskHubError,
)
from functions_host.triggers.http import path_and_query
from functions_host.web.problems import problem
from functions_host.web.route_templates import RouteTable

_STATUS_OF_ERROR: dict[type[TaskHubError], int] = {
    BadRequestError: 400,
    InstanceNotFoundError: 404,
    InstanceCompletedError: 410,
    ConflictError: 409,
}
_RETRY_SECONDS = "5"
_BUSY_SECONDS = 5.0
_CONTINUATION = "x-ms-continuation-token"
_DEFAULT_WAIT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the API: path parameters, query and body."""

    request: Request
    path: Mapping[str, str]
    body: bytes

    @property
    def query(self) -> Mapping[str, str]:
        """The query parameters, the last value of each."""
        return self.request.query_params

    def flag(self, name: str, default: bool = False) -> bool:
        """Read a boolean query parameter."""
        value = self.query.get(name)
        return default if value is None else value.lower() == "true"


type Handler = Callable[[Call], Awaitable[Response] | Response]


class ManagementApi:
    """Answers the routes of the management API for one task hub."""

    def __init__(self, hub: TaskHub, store: SqliteStore, addresses: ClientAddresses) -> None:
        self._hub = hub
        self._store = store
        self._addresses = addresses
        routes: list[tuple[str, str, Handler]] = [
            ("POST", "orchestrators/{name}/{id?}", self._start),
            ("GET", "instances", self._list),
            ("DELETE", "instances", self._purge_many),
            ("GET", "instances/{id}", self._status),
            ("DELETE", "instances/{id}", self._purge_one),
            ("POST", "instances/{id}/raiseEvent/{event}", self._raise_event),
            ("POST", "instances/{id}/terminate", self._terminate),
            ("POST", "instances/{id}/suspend", self._suspend),
            ("POST", "instances/{id}/resume", self._resume),
            ("POST", "instances/{id}/restart", self._restart),
            ("POST", "instances/{id}/rewind", self._rewind),
            ("GET", "entities/{name?}", self._list_entities),
            ("GET", "entities/{name}/{key}", self._read_entity),
            ("POST", "entities/{name}/{key}", self._signal_entity),
        ]
        self._routes = RouteTable((path, frozenset({method}), handler) for method, path, handler in routes)

    async def answer(self, request: Request) -> Response:
        """Answer one request under the API's path."""
        raw_path = request.scope.get("raw_path", b"").decode("latin-1") or request.url.path
        path = raw_path.partition("?")[0][len(WEBHOOK_PATH) :]
        found = self._routes.find(request.method, path)
        if found is None:
            return problem(HTTPStatus.NOT_FOUND, f"The management API has no route {request.method} {path}.")
        handler, values = found
        try:
            self._store.check_files()
            call = Call(request, values, await request.body())
            return await when_unlocked(lambda: handler(call), _BUSY_SECONDS)
        except TaskHubError as error:
            return _problem(_STATUS_OF_ERROR[type(error)], error)
        except StoreError as error:
            return _problem(503, error, {"Retry-After": _RETRY_SECONDS})

    # --- orchestrations ----------------------------------------------------------------------

    async def _start(self, call: Call) -> Response:
        input_json = read_json(call.body)
        version = call.query.get("version", "")
        wait_seconds = read_seconds("timeout", call.query.get("timeout"), _DEFAULT_WAIT_SECONDS)
        instance_id = self._hub.start(call.path["name"], call.path.get("id"), input_json, version)
        if "timeout" in call.query:
            record = await self._hub.wait_for_end(instance_id, wait_seconds)
            if record.status == "Completed":
                return _json(200, encode_stored(record.output_json))
            if record.is_terminal:
                return self._status_response(call, record)
        return self._check_status(call, instance_id)

    def _check_status(self, call: Call, instance_id: str) -> Response:
        base = self._addresses.seen_by(call.request).origin + WEBHOOK_PATH
        urls = management_urls(base, instance_id, self._addresses.query())
        headers = {"Location": urls["statusQueryGetUri"], "Retry-After": "10"}
        return _json(202, json.dumps(urls), headers)

    async def _status(self, call: Call) -> Response:
        return self._status_response(call, await self._hub.find_committed(call.path["id"]))

    def _status_response(self, call: Call, record: InstanceRecord) -> Response:
        history = None
        if call.flag("showHistory"):
            history = encode_status_history(self._hub.read_history(record), call.flag("showHistoryOutput"))
        body = encode_status(record, show_input=call.flag("showInput", True), history_json=history)
        if not record.is_terminal:
            self._store.check_free_space()  # without it, nobody would wait in vain
        if record.is_terminal:
            has_failed = record.status == "Failed" and call.flag("returnInternalServerErrorOnFailure")
            return _json(500 if has_failed else 200, body)
        location = self._addresses.seen_by(call.request).origin + path_and_query(call.request)
        return _json(202, body, {"Location": location, "Retry-After": "5"})

    def _list(self, call: Call) -> Response:
        instance_filter = _read_filter(call)
        records = list_instances(self._store, instance_filter)
        show_input = call.flag("showInput", True)
        body = ",".join(encode_status(record, show_input=show_input) for record in records)
        headers: dict[str, str] = {}
        if instance_filter.limit > 0 and len(records) == instance_filter.limit:
            headers[_CONTINUATION] = str(records[-1].key)
        return _json(200, f"[{body}]", headers)

    def _purge_one(self, call: Call) -> Response:
        self._store.prove()  # also when there is nothing to delete: whoever asks wants it gone for good
        self._hub.purge(call.path["id"])
        return _purge_response(1)

    async def _purge_many(self, call: Call) -> Response:
        instance_filter = _read_filter(call)
        if instance_filter.created_from is None:
            raise BadRequestError("Please provide value for 'createdTimeFrom' parameter.")
        count = await self._hub.purge_all(instance_filter)
        return _purge_response(count) if count else Response(status_code=404)

    def _raise_event(self, call: Call) -> Response:
        content_type = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            raise BadRequestError("Only application/json request content is supported")
        self._hub.raise_event(call.path["id"], call.path["event"], read_json(call.body))
        return Response(status_code=202)

    def _terminate(self, call: Call) -> Response:
        self._hub.terminate(call.path["id"], call.query.get("reason", ""))
        return Response(status_code=202)

    def _suspend(self, call: Call) -> Response:
        self._hub.set_suspended(call.path["id"], True)
        return Response(status_code=202)

    def _resume(self, call: Call) -> Response:
        self._hub.set_suspended(call.path["id"], False)
        return Response(status_code=202)

    def _restart(self, call: Call) -> Response:
        with_new_id = call.flag("restartWithNewInstanceId", True)
        return self._check_status(call, self._hub.restart(call.path["id"], with_new_id=with_new_id))

    def _rewind(self, call: Call) -> Response:
        del call
        return problem(HTTPStatus.NOT_IMPLEMENTED, "The embedded host does not rewind orchestrations; start a new one.")

    # --- entities ----------------------------------------------------------------------------

    def _read_entity(self, call: Call) -> Response:
        record = self._hub.find_entity(call.path["name"], _entity_key(call))
        if record is None:
            return Response(status_code=404)
        return _json(200, record.state_json or "null")

    def _signal_entity(self, call: Call) -> Response:
        operation = call.query.get("op", "")
        input_json = read_json(call.body)
        self._hub.signal_entity(call.path["name"], _entity_key(call), operation, input_json)
        return Response(status_code=202)

    def _list_entities(self, call: Call) -> Response:
        items: list[dict[str, Any]] = []
        used_from, used_to = (
            read_time(name, call.query.get(name)) for name in ("lastOperationTimeFrom", "lastOperationTimeTo")
        )
        for record in list_entities(self._store, call.path.get("name"), used_from=used_from, used_to=used_to):
            name, key = parse_entity_id(record.entity_id)
            item: dict[str, Any] = {
                "entityId": {"name": name, "key": key},
                "lastOperationTime": format_second(record.updated_at),
            }
            if call.flag("fetchState"):
                item["state"] = json.loads(record.state_json or "null")
            items.append(item)
        return _json(200, json.dumps(items))


def _entity_key(call: Call) -> str:
    key = call.path["key"]
    return "" if key == "$" else key


def _json(status: int, body: str, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")


def _purge_response(count: int) -> Response:
    return _json(200, json.dumps({"instancesDeleted": count}))


def _problem(status: int, error: Exception, headers: Mapping[str, str] | None = None) -> Response:
    body = {
        "Message": "Something went wrong while processing your request",
        "ExceptionMessage": str(error),
        "ExceptionType": type(error).__name__,
        "StackTrace": None,
    }
    return _json(status, json.dumps(body), headers)


def _read_filter(call: Call) -> InstanceFilter:
    query = call.query
    return InstanceFilter(
        created_from=read_time("createdTimeFrom", query.get("createdTimeFrom")),
        created_to=read_time("createdTimeTo", query.get("createdTimeTo")),
        statuses=frozenset(status for status in query.get("runtimeStatus", "").split(",") if status),
        prefix=query.get("instanceIdPrefix", ""),
        after_key=read_number(_CONTINUATION, call.request.headers.get(_CONTINUATION), 0),
        limit=read_number("top", query.get("top"), -1),
    )
