"""What the host answers under ``/admin``: whether it runs, its functions, and timer functions run on demand.

Source: "Manually run a non HTTP-triggered function" of the Azure Functions documentation, and the host's
``HostController`` and ``FunctionsController``, as far as tools for local development use them.
"""

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from functions_host.app_loader import AppFunction
from functions_host.timers import Timers

ADMIN_PATH = "/admin"


class AdminApi:
    """Answers requests under ``ADMIN_PATH``.

    Args:
        functions: of the app.
        timers: run the timer functions that are asked for.
    """

    def __init__(self, functions: Iterable[AppFunction], timers: Timers) -> None:
        self._functions = {function.name.lower(): function for function in functions}
        self._timers = timers

    async def answer(self, request: Request) -> Response:
        """Answer one request; paths ignore case, as everywhere on the host."""
        path = str(request.scope["path"]).lower().removeprefix(ADMIN_PATH).strip("/")
        match request.method, path.split("/"):
            case "GET" | "POST", ["host", "ping"]:
                return Response(status_code=200)
            case "GET", ["host", "status"]:
                return JSONResponse({"state": "Running"})
            case "GET", ["functions"]:
                return JSONResponse([_describe(function) for function in self._functions.values()])
            case "GET", ["functions", name] if name in self._functions:
                return JSONResponse(_describe(self._functions[name]))
            case "POST", ["functions", name] if name in self._functions:
                return self._run(self._functions[name])
            case _:
                return Response(status_code=404)

    def _run(self, function: AppFunction) -> Response:
        if function.trigger == "timerTrigger":
            self._timers.run_now(function)
            return Response(status_code=202)
        kind = f"Function {function.name!r} is of the kind {function.trigger}"
        return JSONResponse({"Message": f"{kind}; this request only runs timer functions."}, status_code=400)


def _describe(function: AppFunction) -> dict[str, object]:
    return {"name": function.name, "config": {"bindings": [dict(function.binding)]}, "language": "python"}
