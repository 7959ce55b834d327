"""An app of several files: blueprints, timers, tools, and functions of every auth level."""

import azure.durable_functions as df
import azure.functions as func
from shop.orders import orders
from shop.timers import timers
from shop.tools import tools

app = df.DFApp(http_auth_level=func.AuthLevel.FUNCTION)
app.register_functions(orders)
app.register_functions(timers)
app.register_functions(tools)


@app.route(route="open", auth_level=func.AuthLevel.ANONYMOUS, methods=["GET", "OPTIONS"])
def open_to_all(req: func.HttpRequest) -> str:
    return "open"


@app.route(route="guarded", methods=["GET"])
def guarded(req: func.HttpRequest) -> str:
    return "guarded"


@app.route(route="administrators", auth_level=func.AuthLevel.ADMIN, methods=["GET"])
def administrators(req: func.HttpRequest) -> str:
    return "administrators"


@app.route(route="off", auth_level=func.AuthLevel.ANONYMOUS)
def switched_off(req: func.HttpRequest) -> str:
    return "off"
