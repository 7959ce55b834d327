"""HTTP functions that take a FastAPI request, through the streaming extension."""

import asyncio
import os
import time
from pathlib import Path

import azure.durable_functions as df
import azure.functions as func
from azurefunctions.extensions.http.fastapi import JSONResponse, PlainTextResponse, Request, StreamingResponse
from fastapi import HTTPException

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)


@app.route(route="events", methods=["GET"])
async def events(req: Request) -> StreamingResponse:
    """Send an event, a second one when the caller has the first, then one more for ever."""

    async def produce():
        try:
            yield "id: 0\nevent: first\ndata: one\n\n"
            while "gated" in req.query_params and not Path(os.environ["FUNCTIONS_HOST_DATA"], "gate").exists():
                await asyncio.sleep(0.02)
            yield "id: 1\nevent: second\ndata: two\n\n"
            while "forever" in req.query_params:
                await asyncio.sleep(0.02)
                yield ": still here\n\n"
        finally:
            Path(os.environ["FUNCTIONS_HOST_DATA"], "events").write_text("left")

    return StreamingResponse(produce(), media_type="text/event-stream")


@app.route(route="threaded", methods=["GET"])
def threaded(req: Request) -> StreamingResponse:
    """Stream from a plain generator."""

    def produce():
        for number in range(1_000_000):
            Path(os.environ["FUNCTIONS_HOST_DATA"], "threaded").write_text(str(number))
            yield f"{number}\n"
            time.sleep(0.02)

    return StreamingResponse(produce(), media_type="text/plain")


@app.route(route="echo/{kind:alpha}/{rest?}", methods=["POST", "PUT"])
async def echo(req: Request) -> JSONResponse:
    """Say what arrived, the body chunk by chunk."""
    sizes = [len(chunk) async for chunk in req.stream()]
    return JSONResponse(
        {
            "method": req.method,
            "url": str(req.url),
            "route": req.path_params,
            "query": req.query_params.multi_items(),
            "x-twice": req.headers.getlist("x-twice"),
            "invocation": req.headers["x-ms-invocation-id"],
            "size": sum(sizes),
        },
        status_code=201,
    )


@app.route(route="upload", methods=["POST"])
async def upload(req: Request) -> PlainTextResponse:
    """Note every chunk of the request as it arrives."""
    size = 0
    async for chunk in req.stream():
        size += len(chunk)
        Path(os.environ["FUNCTIONS_HOST_DATA"], "upload").write_text(str(size))
    return PlainTextResponse(str(size))


@app.route(route="plain/{value}", methods=["GET"])
def plain(req: Request, context: func.Context) -> PlainTextResponse:
    return PlainTextResponse(f"{req.path_params['value']} {context.function_name}")


@app.route(route="value", methods=["GET"])
async def value(req: Request) -> dict:
    return {"a": [1, None]}


@app.route(route="broken", methods=["GET"])
async def broken(req: Request) -> str:
    raise ValueError("told to the log only")


@app.route(route="teapot", methods=["GET"])
async def teapot(req: Request) -> str:
    raise HTTPException(418, "short and stout")


@app.route(route="cut", methods=["GET"])
async def cut(req: Request) -> StreamingResponse:
    async def produce():
        yield "begun\n"
        raise ValueError("in the middle")

    return StreamingResponse(produce(), media_type="text/plain")


@app.route(route="start/{name}", methods=["POST"])
@app.durable_client_input(client_name="client")
async def start(req: Request, client: df.DurableOrchestrationClient) -> JSONResponse:
    """Start an orchestration and wait for its end."""
    instance_id = await client.start_new(req.path_params["name"], client_input=await req.json())
    while not (status := await client.get_status(instance_id)).output:
        await asyncio.sleep(0.01)
    return JSONResponse({"output": status.output})


@app.orchestration_trigger(context_name="context")
def shout(context):
    text = yield context.call_activity("upper", context.get_input())
    return text


@app.activity_trigger(input_name="text")
def upper(text: str) -> str:
    return text.upper()
