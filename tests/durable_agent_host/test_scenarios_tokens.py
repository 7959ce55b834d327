"""The example that checks tokens, with a real identity provider's document of keys, served here."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.forks import ROOT
from tests.kit import AgentHost, PracticeModel, running_host

ISSUER, AUDIENCE = "https://login.example", "the-app"
PRIVATE = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def document() -> bytes:
    """The provider's keys."""
    key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(PRIVATE.public_key()))
    return json.dumps({"keys": [key | {"kid": "k1", "use": "sig", "alg": "RS256"}]}).encode()


class Keys(BaseHTTPRequestHandler):
    """Serves the document."""

    request_count = 0

    def do_GET(self) -> None:
        """Give it."""
        Keys.request_count += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(document())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


def token(sub: str, *, key: Any = PRIVATE, algorithm: str = "RS256", kid: str = "k1", **claims: Any) -> str:
    """Sign a token."""
    payload = {"sub": sub, "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 600, "tid": "contoso"} | claims
    return jwt.encode(payload, key, algorithm=algorithm, headers={"kid": kid})


@pytest.fixture(scope="module")
def example(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """The example's app, and the provider of its keys."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Keys)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/keys"
    settings = {"JWKS_URL": url, "JWT_ISSUER": ISSUER, "JWT_AUDIENCE": AUDIENCE}
    with running_host(
        tmp_path_factory.mktemp("tokens"), practice_model, app=ROOT / "examples/owners", **settings
    ) as running:
        yield running
    server.shutdown()
    server.server_close()


def read(host: AgentHost, bearer: str) -> requests.Response:
    """Read the session as the bearer of a token."""
    headers = {"authorization": f"Bearer {bearer}"}
    return requests.get(f"{host.url}/api/agents/Helper/sessions/desk", headers=headers)


def test_sessions_belong_to_the_bearers_of_valid_tokens(example: AgentHost):
    """The bearer of a valid token owns what he begins; support of the same tenant reads it; nobody else does."""
    response = example.run("Helper", "hi", headers={"authorization": f"Bearer {token('ada')}"}, session_id="desk")
    assert response.ok, response.text
    assert read(example, token("ada")).ok
    assert read(example, token("sue", roles=["support"])).ok
    assert read(example, token("sue", roles=["support"], tid="fabrikam")).status_code == 404
    assert read(example, token("bob")).status_code == 404


@pytest.mark.parametrize(
    "bearer",
    [
        "",
        "no.token.this",
        token("ada", exp=1),
        token("ada", aud="another-app"),
        token("ada", iss="https://elsewhere.example"),
        token("ada", key=OTHER),
        token("ada", kid="k2"),
        token("ada", key="", algorithm="none"),
        token("ada", key="k" * 32, algorithm="HS256"),
    ],
    ids=["none", "garbage", "expired", "audience", "issuer", "signature", "unknown key", "unsigned", "symmetric"],
)
def test_an_invalid_token_is_rejected(example: AgentHost, bearer):
    """Before the session is looked up: the same response whether it exists or not."""
    response = read(example, bearer)
    assert response.status_code == 403


def test_unknown_keys_do_not_flood_the_provider(example: AgentHost):
    """Unknown keys are requested once in a while, however many tokens name them."""
    assert [read(example, token("ada", kid=f"k{index}")).status_code for index in range(3, 23)] == [403] * 20
    assert Keys.request_count < 10  # the first time, and once for those of each half minute
