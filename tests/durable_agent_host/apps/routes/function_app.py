"""Routes of an app's own, beside an agent: written for `azure.functions`, and for the streaming extension."""

import json
import threading
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from agent_framework import AgentResponse, Message
from azurefunctions.extensions.http.fastapi import JSONResponse, Request, StreamingResponse

from durable_agent_host import DurableAgentApp


class Echo:
    """An agent that says what it is told."""

    id = name = "Echo"
    description = "echoes"

    def run(self, messages: list[Message], **options: Any) -> Any:
        """Answer with the last message."""
        del options

        async def answer() -> AgentResponse[Any]:
            return AgentResponse(messages=[Message("assistant", [messages[-1].text])])

        return answer()


app = DurableAgentApp(agents=[Echo()], http_auth_level=func.AuthLevel.ANONYMOUS)
blueprint = df.Blueprint()


@app.route(route="shown/{name}/{more?}", methods=["GET", "POST"])
async def show_request(req: func.HttpRequest) -> func.HttpResponse:
    """Show a request as the Functions SDK has it."""
    seen = {
        "method": req.method,
        "url": req.url,
        "params": dict(req.params),
        "route": dict(req.route_params),
        "header": req.headers.get("X-Many"),
        "body": req.get_body().decode(),
    }
    return func.HttpResponse(json.dumps(seen), status_code=201)


@app.route(route="threaded", methods=["POST"])
def threaded(req):
    """Answer from a thread with the sum of a JSON list; the parameter has no annotation."""
    is_main = threading.current_thread() is threading.main_thread()
    return func.HttpResponse(
        f"{sum(req.get_json())} {is_main}", headers={"set-cookie": "a=b; Path=/", "x-own": "yes"}, mimetype="text/html"
    )


@app.route(route="form", methods=["POST"])
async def form(req: func.HttpRequest, context: func.Context) -> str:
    """Answer with a text: a field and a file of a form."""
    upload = req.files["file"]
    return f"{req.form['field']} {upload.filename} {upload.read().decode()} {bool(context.invocation_id)}"


@app.route(route="nothing", methods=["GET"])
async def nothing(req: func.HttpRequest) -> None:
    """Answer with nothing."""


@app.route(route="streamed", methods=["GET"])
async def streamed(req: Request) -> StreamingResponse:
    """Stream with the extension's own types."""

    async def fragments():
        yield "one "
        yield req.query_params["last"]

    return StreamingResponse(fragments(), media_type="text/plain")


@app.route(route="mixed", methods=["POST"])
async def mixed(req: func.HttpRequest) -> JSONResponse:
    """Take the SDK's request, and give a response of the extension."""
    return JSONResponse({"got": req.get_body().decode()}, status_code=202)


@blueprint.route(route="from-blueprint/{turn}", methods=["GET"])
@blueprint.durable_client_input(client_name="client")
async def from_blueprint(req: func.HttpRequest, client: df.DurableOrchestrationClient) -> func.HttpResponse:
    """Ask for an orchestration's status by the durable client."""
    return client.create_check_status_response(req, req.route_params["turn"])


app.register_functions(blueprint)
