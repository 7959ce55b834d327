"""Functions with input and output bindings that the embedded host does not serve."""

import json
import os
from pathlib import Path

import azure.durable_functions as df
import azure.functions as func

app = df.DFApp(http_auth_level=func.AuthLevel.ANONYMOUS)
STORE = "AzureWebJobsStorage"


def write_line(line: str) -> None:
    with Path(os.environ["FUNCTIONS_HOST_DATA"], "notes").open("a") as file:
        file.write(line + "\n")


@app.route()
@app.queue_output(arg_name="letter", queue_name="letters", connection=STORE)
def sends(req: func.HttpRequest, letter: func.Out[str]) -> str:
    write_line("sends ran")
    if "silent" not in req.params:
        letter.set("dear reader")
    return "sent"


@app.route(binding_arg_name="answer")
@app.blob_output(arg_name="page", path="pages/one", connection=STORE)
@app.queue_output(arg_name="letter", queue_name="letters", connection=STORE)
async def stores(
    req: func.HttpRequest, answer: func.Out[func.HttpResponse], page: func.Out[bytes], letter: func.Out[str]
) -> None:
    page.set(b"page")
    letter.set("letter")
    answer.set(func.HttpResponse("stored"))


@app.route(route="reads/{name}")
@app.blob_input(arg_name="page", path="pages/{name}", connection=STORE)
def reads(req: func.HttpRequest, page: str) -> str:
    write_line("reads ran")
    return page


@app.timer_trigger(arg_name="timer", schedule="0 0 0 1 1 *")
@app.queue_output(arg_name="$return", queue_name="letters", connection=STORE)
def yearly(timer: func.TimerRequest) -> str:
    write_line("yearly ran")
    return "happy new year"


@app.activity_trigger(input_name="number")
@app.queue_output(arg_name="letter", queue_name="letters", connection=STORE)
def posts(number: int, letter: func.Out[str]) -> int:
    letter.set(str(number))
    return number


@app.orchestration_trigger(context_name="context")
def post(context):
    return (yield context.call_activity("posts", 7))


@app.function_name("look")
@app.mcp_tool_trigger(arg_name="context", tool_name="look", description="Look.", tool_properties="[]")
@app.blob_input(arg_name="page", path="pages/one", connection=STORE)
def read_page(context: str, page: str) -> str:
    return page


@app.queue_trigger(arg_name="letter", queue_name="letters", connection=STORE)
@app.blob_output(arg_name="page", path="pages/{id}", connection=STORE)
def receives(letter: func.QueueMessage, page: func.Out[str]) -> None:
    page.set(json.dumps(letter.get_body().decode()))
