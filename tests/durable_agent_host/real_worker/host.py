"""A stand-in for the Functions host that speaks the real worker protocol.

``python -m tests.durable_agent_host.real_worker.host APP DATA`` starts a worker, loads the app's functions over gRPC,
and prints where it listens. HTTP is proxied to the worker (HTTP v2). The durable extension is the embedded host's
engine; timers of more than a second have legs of a second.
"""

import asyncio
import importlib
import json
import os
import sys
import uuid
from importlib.resources import files
from pathlib import Path
from typing import Any

import grpc
from aiohttp import ClientSession, ClientTimeout
from grpc_tools import protoc
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from functions_host.app.client_binding import WEBHOOK_PATH, ClientAddresses, encode_client_binding
from functions_host.engine.decision import Catalog
from functions_host.engine.durable_functions import Raised, Returned
from functions_host.engine.sqlite_store import SqliteStore
from functions_host.engine.task_hub import TaskHub
from functions_host.engine.worker import Limits, Worker
from functions_host.host_names import HostNames
from functions_host.web.management_api import ManagementApi
from functions_host.web.route_templates import RouteTable
from functions_host.web.server import HostServer, open_listener

HERE = Path(__file__).parent
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
HOP_HEADERS = {"transfer-encoding", "connection", "content-length"}
TIMER = {"Schedule": {"AdjustForDST": True}, "ScheduleStatus": None, "IsPastDue": False}
rpc: Any = None
"""The protocol's messages."""


def make_messages(folder: Path) -> Any:
    """Generate the code of the messages, and import it."""
    protos, common_protos = HERE / "protos", str(files("grpc_tools") / "_proto")
    names = [str(path.relative_to(protos)) for path in protos.rglob("*.proto")]
    folder.mkdir()
    assert protoc.main(["", f"-I{protos}", f"-I{common_protos}", f"--python_out={folder}", *names]) == 0
    sys.path.insert(0, str(folder))
    return importlib.import_module("FunctionRpc_pb2")


class WorkerProcess:
    """A worker, and the functions that it has loaded: the names of their bindings by type, by function."""

    def __init__(self, app: Path) -> None:
        self.app = str(app)
        self.functions: dict[str, tuple[str, list[dict[str, Any]]]] = {}
        self.http_url = ""
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._responses: dict[str, asyncio.Future[Any]] = {}
        self._client_binding = ""

    async def start(self, messages: Path, client_binding: str) -> None:
        """Start the process, and load the app."""
        self._client_binding = client_binding
        server = self._server = grpc.aio.server(options=UNLIMITED)
        handler = grpc.stream_stream_rpc_method_handler(
            self._exchange, rpc.StreamingMessage.FromString, rpc.StreamingMessage.SerializeToString
        )
        service = "AzureFunctionsRpcMessages.FunctionRpc"
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"EventStream": handler})])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        connected = self._expect("start_stream")
        environment = {**os.environ, "AzureWebJobsScriptRoot": self.app, "PYTHONPATH": str(messages)}
        command = [sys.executable, str(HERE / "worker.py"), f"127.0.0.1:{port}"]
        self._process = await asyncio.create_subprocess_exec(*command, cwd=self.app, env=environment)
        await connected
        started = await self._ask("worker_init", host_version="4.1052.200", function_app_directory=self.app)
        assert started.result.status == 1, started.result.exception.message
        self.http_url = started.capabilities["HttpUri"]
        found = await self._ask("functions_metadata", answer="function_metadata", function_app_directory=self.app)
        for function in found.function_metadata_results:
            loaded = await self._ask("function_load", function_id=function.function_id, metadata=function)
            assert loaded.result.status == 1, loaded.result.exception.message
            self.functions[function.name] = function.function_id, [json.loads(text) for text in function.raw_bindings]
        assert self.functions, found.result.exception.message

    async def invoke(self, name: str, argument: str, data: dict[str, Any], invocation_id: str = "") -> Any:
        """Invoke a function with its trigger's data, and with the durable client where it has one."""
        function_id, bindings = self.functions[name]
        invocation_id = invocation_id or str(uuid.uuid4())
        request = rpc.InvocationRequest(invocation_id=invocation_id, function_id=function_id)
        request.trace_context.trace_parent = f"00-{uuid.uuid4().hex}-{uuid.uuid4().hex[:16]}-01"
        request.input_data.add(name=argument, data=rpc.TypedData(**data))
        for binding in bindings:
            if binding["type"] == "durableClient":
                request.input_data.add(name=binding["name"], data=rpc.TypedData(string=self._client_binding))
        response = self._expect(f"invocation_response{invocation_id}")
        self._requests.put_nowait(rpc.StreamingMessage(request_id=invocation_id, invocation_request=request))
        return await response

    async def _ask(self, kind: str, answer: str = "", **fields: Any) -> Any:
        response = self._expect(f"{answer or kind}_response")
        message = {f"{kind}_request": {**fields}}
        self._requests.put_nowait(rpc.StreamingMessage(request_id=str(uuid.uuid4()), **message))
        return await response

    def _expect(self, key: str) -> "asyncio.Future[Any]":
        self._responses[key] = asyncio.get_running_loop().create_future()
        return self._responses[key]

    async def _exchange(self, messages: Any, context: Any) -> Any:
        """The protocol's one call: messages both ways."""
        del context
        reading = asyncio.create_task(self._read(messages))
        try:
            while True:
                yield await self._requests.get()
        finally:
            reading.cancel()

    async def _read(self, messages: Any) -> None:
        async for message in messages:
            kind = message.WhichOneof("content")
            if kind == "rpc_log":
                if message.rpc_log.level >= rpc.RpcLog.Warning:
                    print(message.rpc_log.message, flush=True)
                continue
            response = getattr(message, kind)
            self._responses.pop(f"{kind}{getattr(response, 'invocation_id', '')}").set_result(response)


class DurableWorkerFunctions:
    """The engine's port to the worker."""

    def __init__(self, worker: WorkerProcess) -> None:
        self._worker = worker
        self._functions: dict[str, dict[str, tuple[str, str]]] = {"orchestration": {}, "activity": {}, "entity": {}}
        for name, (_, bindings) in worker.functions.items():
            for binding in bindings:
                kind = binding["type"].removesuffix("Trigger")
                if kind in self._functions:
                    durable_name = binding.get(kind) or binding.get("entityName") or name
                    self._functions[kind][durable_name.lower()] = name, binding["name"]
        orchestrators, activities, entities = (frozenset(names) for names in self._functions.values())
        self.catalog = Catalog(orchestrators, activities, entities)

    async def run_orchestrator(self, name: str, context_json: str) -> Returned | Raised:
        """Call an orchestrator."""
        short_legs = context_json.replace('"6.00:00:00"', '"00:00:01"').replace('"3.00:00:00"', '"00:00:01"')
        return await self._run("orchestration", name, short_legs)

    async def run_entity(self, name: str, batch_json: str) -> Returned | Raised:
        """Call an entity."""
        return await self._run("entity", name, batch_json)

    async def run_activity(self, name: str, input_json: str) -> Returned | Raised:
        """Call an activity."""
        return await self._run("activity", name, input_json)

    async def _run(self, kind: str, name: str, text: str) -> Returned | Raised:
        answer = await self._worker.invoke(*self._functions[kind][name.lower()], {"string": text})
        if answer.result.status != 1:
            return Raised("Exception", answer.result.exception.message, answer.result.exception.stack_trace)
        return Returned(answer.return_value.json or json.dumps(answer.return_value.string))


class FrontEnd:
    """Answers requests: of durable clients by the engine, of others by the worker's own server."""

    def __init__(self, worker: WorkerProcess, management: ManagementApi) -> None:
        self._worker = worker
        self._management = management
        triggers = [
            (name, binding)
            for name, (_, bindings) in worker.functions.items()
            for binding in bindings
            if binding["type"] == "httpTrigger"
        ]
        self._routes = RouteTable(
            (f"api/{binding.get('route') or name}", frozenset(binding.get("methods") or ()), (name, binding["name"]))
            for name, binding in triggers
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        if request.url.path.startswith(WEBHOOK_PATH):
            await (await self._management.answer(request))(scope, receive, send)
        elif request.url.path.startswith("/admin/functions/"):
            name = request.url.path.rpartition("/")[2]
            argument = next(
                binding["name"] for binding in self._worker.functions[name][1] if binding["type"] == "timerTrigger"
            )
            answer = await self._worker.invoke(name, argument, {"json": json.dumps(TIMER)})
            await Response(answer.result.exception.message)(scope, receive, send)
        else:
            await self._proxy(request, send)

    async def _proxy(self, request: Request, send: Send) -> None:
        found = self._routes.find(request.method, request.scope["raw_path"].decode())
        if found is None:
            await Response(status_code=404)(request.scope, request.receive, send)
            return
        (name, argument), parameters = found
        invocation_id = str(uuid.uuid4())
        headers = [(key, value) for key, value in request.headers.items() if key not in HOP_HEADERS]
        headers.append(("x-ms-invocation-id", invocation_id))
        url = f"{self._worker.http_url}{request.url.path}?{request.url.query}"
        invocation = self._worker.invoke(name, argument, {"http": {"params": parameters}}, invocation_id)
        invoked = asyncio.create_task(invocation)
        async with (
            ClientSession(timeout=ClientTimeout(total=None), auto_decompress=False) as client,
            client.request(request.method, url, data=await request.body() or None, headers=headers) as answer,
        ):
            kept_headers = {key: value for key, value in answer.headers.items() if key.lower() not in HOP_HEADERS}
            response = StreamingResponse(answer.content.iter_any(), answer.status, kept_headers)
            await response(request.scope, request.receive, send)
        await invoked


async def main(app: Path, data: Path) -> None:
    """Start a worker with the app, and serve."""
    global rpc  # noqa: PLW0603 - generated when the program starts
    rpc = make_messages(data / "messages")
    listener = open_listener("127.0.0.1", 0)
    origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
    addresses = ClientAddresses(origin, origin, "default", HostNames(origin))
    worker, store = WorkerProcess(app), SqliteStore(data / "host.db")
    await worker.start(data / "messages", encode_client_binding(addresses, None, None))
    engine = Worker(store, DurableWorkerFunctions(worker), Limits.default())
    front_end = FrontEnd(worker, ManagementApi(TaskHub(engine), store, addresses))
    engine.start()
    await HostServer(front_end, lambda: print(f"ready: {origin}", flush=True)).serve(sockets=[listener])


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()))
