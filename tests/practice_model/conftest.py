"""A practice model served over real HTTP on a free loopback port."""

import threading
from collections.abc import Iterator

import httpx2
import pytest
import uvicorn

from practice_model import PracticeModel


class PracticeModelClient:
    """A running practice model: its URL and an HTTP client with a key."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx2.Client(base_url=url, headers={"authorization": "Bearer practice"}, timeout=60)

    def plan(self, *steps, **plan):
        """Post a plan of these steps."""
        response = self.http.post("/practice/plans", json={"steps": list(steps), **plan})
        assert response.status_code == 201, response.text

    def ask(self, user_input="Hello", **body):
        """Send a request to the model."""
        return self.http.post("/v1/responses", json={"model": "practice", "input": user_input, **body})

    def requests(self):
        """Return the log of requests."""
        return self.http.get("/practice/requests").json()


def serve(app) -> Iterator[PracticeModelClient]:
    """Serve an app in a thread until the generator is closed."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.01)
    client = PracticeModelClient(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
    yield client
    client.http.close()
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="session")
def _shared_client() -> Iterator[PracticeModelClient]:
    yield from serve(PracticeModel(seed="test").app)


@pytest.fixture
def model(_shared_client: PracticeModelClient) -> PracticeModelClient:
    """A practice model, plans and request log emptied."""
    _shared_client.http.delete("/practice/plans")
    _shared_client.http.delete("/practice/requests")
    return _shared_client
