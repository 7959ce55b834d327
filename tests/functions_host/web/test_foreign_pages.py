"""Which names the host answers to, and which pages of a browser may call it: headers of browsers, sent by hand."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functions_host.conftest import MANAGEMENT, Answer, Host, StartHost, send

SETTINGS = {"EVERY_SECOND": "* * * * * *", "AzureWebJobs.switched_off.Disabled": "true"}
FOREIGN = {"Origin": "http://evil.example"}
ACCEPT = "application/json, text/event-stream"
ROUTES = [
    ("GET", "/"),
    ("GET", "/nothing"),
    ("GET", "/api/guarded"),
    ("POST", "/api/orders/tea"),
    ("POST", f"{MANAGEMENT}/orchestrators/order/foreign"),
    ("GET", f"{MANAGEMENT}/instances"),
    ("DELETE", f"{MANAGEMENT}/instances/foreign"),
    ("POST", f"{MANAGEMENT}/instances/foreign/terminate"),
    ("GET", f"{MANAGEMENT}/entities"),
    ("POST", f"{MANAGEMENT}/entities/counter/a?op=reset"),
    ("GET", "/admin/host/status"),
    ("POST", "/admin/functions/yearly"),
    ("POST", "/runtime/webhooks/mcp"),
    ("OPTIONS", "/api/guarded"),
    ("OPTIONS", f"{MANAGEMENT}/instances"),
]


@pytest.fixture(scope="module")
def model(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with an app that has functions of every level, orchestrations, timers and tools."""
    running = start_host(
        "model", tmp_path_factory.mktemp("model") / "data", "--allow-host", "tunnel.example", env=SETTINGS
    )
    yield running
    running.stop()


def call(host: Host, method: str, path: str, **headers: str) -> Answer:
    """Send a request as a page does that needs no leave for it; ``_`` in names of headers stands for ``-``."""
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
    body = b'"tea"' if method == "POST" else None
    return send(method, host.url + path, body, {"Content-Type": "text/plain", "Accept": ACCEPT} | header_fields)


def detail(answer: Answer) -> str:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.json["detail"]


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        *((path, "evil.example") for path in ("/", "/api/guarded", f"{MANAGEMENT}/instances", "/admin/host/ping")),
        *(("/api/open", name) for name in ("evil.example:{port}", "localhost.evil.example", "10.1.2.3", "0.0.0.0")),
    ],
)
def test_a_foreign_host_name_is_rejected_on_every_route(model: Host, path: str, name: str):
    """A name that was made to lead here (DNS rebinding) is answered with 421, and a sentence that says what helps."""
    answer = call(model, "GET", path, Host=name.format(port=model.url.rpartition(":")[2]))
    assert answer.status == 421
    assert "--allow-host" in detail(answer)
    assert call(model, "POST", path, Host=name.format(port=1)).status == 421


@pytest.mark.parametrize(
    "name", ["localhost", "LOCALHOST:7", "localhost.", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]:7"]
)
def test_names_of_the_host_are_accepted(model: Host, name: str):
    """Localhost, what is below it and loopback addresses, with any port: one may lead here from another machine."""
    assert call(model, "GET", "/api/open", Host=name).status == 200


def test_more_names_can_be_allowed(model: Host, start_host: StartHost, tmp_path: Path):
    """A flag names more, and Host.AllowedHosts of local.settings.json too."""
    assert call(model, "GET", "/api/open", Host="Tunnel.example:443").status == 200
    assert call(model, "GET", "/api/open", Host="a.tunnel.example").status == 421
    host = start_host(app_with_settings(tmp_path, AllowedHosts="one.example; *.two.example"), tmp_path / "data")
    for name, status in [("one.example", 200), ("a.two.example", 200), ("two.example", 421), ("three.example", 421)]:
        assert call(host, "GET", "/api/ping", Host=name).status == status


@pytest.mark.parametrize("name", ["", "a b", "evil@localhost", "localhost/", "localhost:x", "[::1"])
def test_an_invalid_host_name_is_rejected(model: Host, name: str):
    """A Host that cannot be read is a 400."""
    assert call(model, "GET", "/api/open", Host=name).status in {400, 421}


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "tunnel.example"])
def test_urls_have_a_name_of_the_host(model: Host, name: str):
    """Management URLs are under the name that the caller used, among the host's own."""
    port = model.url.rpartition(":")[2]
    answer = call(
        model, "POST", f"{MANAGEMENT}/orchestrators/order", Host=f"{name}:{port}", Content_Type="application/json"
    )
    for url in [answer.headers["location"], answer.json["terminatePostUri"]]:
        assert url.startswith(f"http://{name}:{port}/runtime/")
    response = call(model, "POST", f"{MANAGEMENT}/orchestrators/order", Host="evil.example")
    assert "evil.example:" not in response.text
    assert "code=" not in response.text


# --- pages --------------------------------------------------------------------------------------

PAGES = [
    FOREIGN,
    {"Origin": "null"},
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://127.0.0.1"},
]


@pytest.mark.parametrize(
    ("method", "path", "page"),
    [*((*route, FOREIGN) for route in ROUTES), *((*route, page) for page in PAGES[1:] for route in ROUTES[2:5])],
)
def test_pages_of_other_origins_reach_nothing(model: Host, method: str, path: str, page: dict[str, str]):
    """Reads and changes are refused, with a sentence; another port of this machine is another origin."""
    answer = call(model, method, path, **page)
    assert answer.status == 403
    assert "Host.CORS" in detail(answer)
    assert "access-control-allow-origin" not in answer.headers
    assert model.send("GET", f"{MANAGEMENT}/instances/foreign").status == 404


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/api/guarded"), ("GET", f"{MANAGEMENT}/instances"), ("GET", "/")]
)
def test_same_origin_pages_and_other_clients_are_accepted(model: Host, method: str, path: str):
    """A page that the host served calls it, under any of its names; curl and SDKs send none of these headers."""
    port = model.url.rpartition(":")[2]
    for headers in [
        {},
        {"Origin": model.url},
        {"Origin": f"http://localhost:{port}"},
        {"Origin": "https://tunnel.example", "Host": "tunnel.example"},
    ]:
        assert call(model, "GET", path, **headers).status == 200, headers


# --- CORS ---------------------------------------------------------------------------------------

APP = """
import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.FUNCTION)

@app.route(route="ping", methods=["GET", "POST"])
def ping(req: func.HttpRequest) -> func.HttpResponse:
    return func.HttpResponse("pong", headers={"x-ms-turn-id": "7", "x-other": "8"})
"""


def app_with_settings(folder: Path, **host: object) -> Path:
    """An app with a ``Host`` section."""
    app = folder / "app"
    app.mkdir()
    (app / "function_app.py").write_text(APP)
    (app / "host.json").write_text('{"version": "2.0"}')
    (app / "local.settings.json").write_text(json.dumps({"Host": host}))
    return app


def test_pages_that_cors_allows_may_do_everything(start_host: StartHost, tmp_path: Path):
    """They call every route, and read the headers that clients of agents need; others are refused as before."""
    app = app_with_settings(tmp_path, CORS="http://localhost:3000, https://Good.example/", CORSCredentials=True)
    host = start_host(app, tmp_path / "data")
    for origin in ["http://localhost:3000", "https://good.example"]:
        answer = call(host, "POST", "/api/ping", Origin=origin)
        assert (answer.status, answer.text) == (200, "pong")
        assert answer.headers["access-control-allow-origin"] == origin
        assert answer.headers["access-control-allow-credentials"] == "true"
        assert answer.headers["access-control-expose-headers"] == "*"
        assert call(host, "GET", f"{MANAGEMENT}/instances", Origin=origin).status == 200
        preflight_headers = {
            "Access_Control_Request_Method": "POST",
            "Access_Control_Request_Headers": "x-ms-wait-for-response",
        }
        preflight = call(host, "OPTIONS", "/api/ping", Origin=origin, **preflight_headers)
        assert preflight.status == 200
        assert "x-ms-wait-for-response" in preflight.headers["access-control-allow-headers"]
    assert call(host, "POST", "/api/ping", Origin="http://localhost:3001").status == 403
    assert call(host, "GET", "/api/ping", Origin="https://good.example", Host="evil.example").status == 421


def test_cors_for_all_origins_is_reported(start_host: StartHost, tmp_path: Path):
    """With ``*`` every page may call; the log says what that means. Credentials do not go with it."""
    host = start_host(app_with_settings(tmp_path, CORS="*"), tmp_path / "data")
    assert call(host, "POST", "/api/ping", **FOREIGN).status == 200
    assert "every page" in host.log.read_text()
    settings = host.app / "local.settings.json"
    settings.write_text(json.dumps({"Host": {"CORS": "*", "CORSCredentials": True}}))
    other_host = Host(host.app, tmp_path / "other")
    assert other_host.stop() == 1
    assert "CORSCredentials goes with named origins only" in other_host.log.read_text()
