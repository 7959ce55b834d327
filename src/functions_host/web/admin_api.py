"""The API under ``/admin``: host status, and running timer functions on demand.

Source: "Manually run a non HTTP-triggered function" of the Azure Functions documentation, and the host's
``HostController``.
"""

from collections.abc import Callable, Iterable
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from functions_host.app.function import AppFunction
from functions_host.engine.database import StoreError
from functions_host.triggers.timers import Timers
from functions_host.web.problems import problem

ADMIN_PATH = "/admin"


class AdminApi:
    """Answers requests under ``ADMIN_PATH``.

    Args:
        functions: of the app.
        timers: run timer functions on demand.
        prove_store: proves with a small write that the store works.
    """

    def __init__(self, functions: Iterable[AppFunction], timers: Timers, prove_store: Callable[[], None]) -> None:
        self._prove_store = prove_store
        self._functions = {function.name.lower(): function for function in functions}
        self._timers = timers

    async def answer(self, request: Request) -> Response:
        """Answer one request; paths ignore case."""
        path = str(request.scope["path"]).lower().removeprefix(ADMIN_PATH).strip("/")
        match request.method, path.split("/"):
            case "GET" | "POST", ["host", "ping"]:
                return Response(status_code=200)
            case "GET", ["host", "status"]:
                return self._status()
            case "POST", ["functions", name] if name in self._functions:
                return self._run(self._functions[name])
            case _:
                return problem(HTTPStatus.NOT_FOUND, f"{ADMIN_PATH} has no route {request.method} /{path}.")

    def _status(self) -> Response:
        try:
            self._prove_store()
        except StoreError as error:
            return JSONResponse({"state": "Error", "errors": [str(error)]}, 503)
        return JSONResponse({"state": "Running"})

    def _run(self, function: AppFunction) -> Response:
        if function.trigger == "timerTrigger":
            self._timers.run_now(function)
            return Response(status_code=202)
        kind = f"Function {function.name!r} is of the kind {function.trigger}"
        return JSONResponse({"Message": f"{kind}; this request only runs timer functions."}, status_code=400)
