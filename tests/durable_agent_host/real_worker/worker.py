"""A worker process after Azure's ``proxy_worker``: real gRPC and messages, and the real ``azure_functions_runtime``."""

import asyncio
import logging
import os
import queue
import sys
import threading
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import azure_functions_runtime as runtime
import FunctionRpc_pb2
import grpc
from shared import NullableTypes_pb2

sys.path.insert(0, os.environ["AzureWebJobsScriptRoot"])  # noqa: SIM112 - Azure's name
protos: Any = ModuleType("protos")
for module in (FunctionRpc_pb2, NullableTypes_pb2):
    vars(protos).update({name: value for name, value in vars(module).items() if not name.startswith("_")})

HANDLERS = {
    "worker_init_request": "WorkerInitRequest",
    "functions_metadata_request": "FunctionsMetadataRequest",
    "function_load_request": "FunctionLoadRequest",
    "invocation_request": "FunctionInvocation",
}
ANSWERS = {"functions_metadata_request": "function_metadata_response"}
INVOCATION = "__azure_function_invocation_id__"


@dataclass
class WorkerRequest:
    """What the runtime library takes."""

    name: str
    request: Any
    properties: dict[str, Any]


class InvocationTask(asyncio.Task[Any]):
    """A task that hands on the invocation it belongs to, by which the runtime finds its logger."""

    def __init__(self, coroutine: Any, *, loop: asyncio.AbstractEventLoop, **more: Any) -> None:
        super().__init__(coroutine, loop=loop, **more)
        if invocation := getattr(asyncio.current_task(loop), INVOCATION, None):
            setattr(self, INVOCATION, invocation)


class Dispatcher(logging.Handler):
    """Answers each message of the host, and sends it the log."""

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self.messages: queue.Queue[Any] = queue.Queue()
        self.send(start_stream=protos.StartStream(worker_id="worker"))
        threading.Thread(target=self.poll, args=[address], daemon=True).start()

    def send(self, request_id: str = "worker", **content: Any) -> None:
        """Send a message."""
        self.messages.put(protos.StreamingMessage(request_id=request_id, **content))

    def emit(self, record: logging.LogRecord) -> None:
        """Send a log record."""
        message = self.format(record)
        self.send(rpc_log=protos.RpcLog(level=min(record.levelno // 10, 5), message=message, category=record.name))

    def poll(self, address: str) -> None:
        """Read until the host goes."""
        limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        exchange = grpc.insecure_channel(address, limits).stream_stream(
            "/AzureFunctionsRpcMessages.FunctionRpc/EventStream",
            protos.StreamingMessage.SerializeToString,
            protos.StreamingMessage.FromString,
        )
        try:
            for message in exchange(iter(self.messages.get, None)):
                self.loop.call_soon_threadsafe(self.loop.create_task, self.dispatch(message))
        finally:
            os._exit(0)

    async def dispatch(self, message: Any) -> None:
        """Answer a message."""
        kind = message.WhichOneof("content")
        if kind == "invocation_request":
            setattr(asyncio.current_task(), INVOCATION, message.invocation_request.invocation_id)
        request = WorkerRequest(HANDLERS[kind], message, {"protos": protos, "host": "127.0.0.1"})
        answer = await getattr(runtime, kind)(request)
        self.send(message.request_id, **{ANSWERS.get(kind) or kind.replace("_request", "_response"): answer})


async def main(address: str) -> None:
    """Connect, and serve."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(lambda loop, coroutine, **more: InvocationTask(coroutine, loop=loop, **more))
    runtime.start_threadpool_executor()
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger().addHandler(Dispatcher(address, loop))
    await loop.create_future()


asyncio.run(main(sys.argv[1]))
