"""HTTP functions of all the kinds that the worker's own tests have, and functions that write logs."""
# ruff: noqa: D101, LOG015 - apps write logs as they like

import asyncio
import hashlib
import json
import logging
from urllib.request import urlopen

import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
logger = logging.getLogger("orders")
PAGE = "<p>Grüße™</p>"


# --- answers ----------------------------------------------------------------------------------


@app.route()
def text(req: func.HttpRequest) -> str:
    return "plain text"


@app.route()
async def awaited(req: func.HttpRequest):
    await asyncio.sleep(0.01)
    return "after a while"


@app.function_name("named")
@app.route(binding_arg_name="answer")
def set_by_name(req: func.HttpRequest, answer: func.Out[func.HttpResponse]):
    answer.set(func.HttpResponse("by name", status_code=201, headers={"x-named": "yes"}))


@app.route(binding_arg_name="answer")
async def named_text(req: func.HttpRequest, answer: func.Out[str]) -> None:
    if "silent" not in req.params:
        answer.set("text by name")


@app.generic_trigger(arg_name="req", type="httpTrigger", route="generic", authLevel="anonymous")
@app.generic_output_binding(arg_name="$return", type="http")
def generic(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse("generic")


@app.generic_trigger(arg_name="req", type="httpTrigger", route="generic_named", authLevel="anonymous")
@app.generic_output_binding(arg_name="answer", type="http")
def generic_named(req: func.HttpRequest, answer: func.Out[func.HttpResponse]):
    answer.set(func.HttpResponse("generic by name", status_code=202))


@app.generic_trigger(arg_name="req", type="httpTrigger", route="no_output", authLevel="anonymous")
def no_output(req: func.HttpRequest):
    return None if "silent" in req.params else "nothing takes this"


@app.route()
def raw_bytes(req: func.HttpRequest):
    return b"not converted"


@app.route()
def nothing(req: func.HttpRequest):
    logger.info("nothing to say")


@app.route()
def page(req: func.HttpRequest):
    return func.HttpResponse(PAGE, mimetype="text/html")


@app.route(auth_level=func.AuthLevel.ADMIN)
def page_for_admins(req: func.HttpRequest):
    return func.HttpResponse(PAGE, mimetype="text/html")


@app.route()
def bodiless(req: func.HttpRequest):
    return func.HttpResponse()


@app.route()
def missing(req: func.HttpRequest):
    return func.HttpResponse("not here", status_code=404)


@app.function_name("moved")
@app.route()
def redirect(req: func.HttpRequest):
    return func.HttpResponse(status_code=302, headers={"location": f"page?code={req.params.get('code')}"})


@app.route()
def status(req: func.HttpRequest):
    return func.HttpResponse("with a body", status_code=int(req.params["code"]))


# --- requests ---------------------------------------------------------------------------------


@app.route(route="seen")
def seen(req: func.HttpRequest):
    body = req.get_body()
    fields = {
        "method": req.method,
        "url": req.url,
        "headers": dict(req.headers),
        "params": dict(req.params),
        "text": body.decode(),
        "hash": hashlib.sha256(body).hexdigest(),
    }
    return json.dumps(fields)


@app.route()
def seen_json(req: func.HttpRequest):
    return json.dumps(req.get_json())


@app.route()
def form(req: func.HttpRequest):
    return json.dumps({"fields": dict(req.form), "files": {name: file.filename for name, file in req.files.items()}})


@app.route(route="pair/{first}/{second}")
def pair(req: func.HttpRequest) -> str:
    return json.dumps(dict(req.route_params))


@app.route()
def mirror(req: func.HttpRequest) -> func.HttpResponse:
    body = req.get_body()
    return func.HttpResponse(body, headers={"x-size": str(len(body))}, mimetype=req.headers.get("content-type"))


@app.function_name("told_context")
@app.route()
def show_context(req: func.HttpRequest, context: func.Context):
    fields = {
        "name": context.function_name,
        "folder": context.function_directory,
        "invocation": context.invocation_id,
        "parent": context.trace_context.Traceparent,
        "state": context.trace_context.Tracestate,
    }
    return json.dumps(fields)


# --- failures ---------------------------------------------------------------------------------


@app.route()
def divides(req: func.HttpRequest):
    return str(1 / 0)


@app.route()
def opens(req: func.HttpRequest) -> str:
    return urlopen(req.params["address"]).read().decode()


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("there is no text of it")


@app.route()
def mute(req: func.HttpRequest) -> str:
    raise MuteError


@app.route()
def lacks_module(req: func.HttpRequest) -> str:
    import nothing_of_this_name  # noqa: F401

    return ""


# --- headers ----------------------------------------------------------------------------------

COOKIES = {
    "whole": [
        "a=1; Domain=example.com; Expires=Thu, 12-Jan-2017 13:55:08 GMT; Path=/; Max-Age=10000000; Secure; HttpOnly",
        "a=2; Domain=example.com; Expires=Thu, 12 Jan 2018 13:55:08 GMT; Path=/; Max-Age=9.5; SameSite=Lax",
    ],
    "short": ["b=2"],
    "empty": [""],
}


@app.route(route="cookies/{kind}")
def cookies(req: func.HttpRequest) -> func.HttpResponse:
    response = func.HttpResponse("baked")
    for cookie in COOKIES[req.route_params["kind"]]:
        response.headers.add("Set-Cookie", cookie)
    response.headers.add("X-More", "more")
    return response


class Blind(func.HttpResponse):
    """A response whose headers nobody has checked."""

    def __init__(self, name: str, value: str) -> None:
        super().__init__("unchecked")
        self._headers = {"content-type": "text/plain", name: value}

    @property
    def headers(self):
        return self._headers


@app.route()
def header(req: func.HttpRequest):
    return Blind(req.params["name"], req.get_json()["value"])


# --- logs -------------------------------------------------------------------------------------


@app.route()
def writes(req: func.HttpRequest):
    logging.debug("root debug")
    logging.info("root info")
    logging.warning("root warning")
    logger.error("orders error")
    logging.getLogger("azure.functions").info("disguised")
    return "written"


@app.route()
async def writes_later(req: func.HttpRequest):
    logger.info("first %s", "line")

    async def fail() -> None:
        await asyncio.sleep(0.01)
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError:
            logger.exception("nested line")

    await asyncio.ensure_future(fail())
    return "written"
