"""Tests call the app in this process. The practice model answers: no key is needed, and nothing is paid."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest_plugins = ["functions_host.testing"]


class Model:
    """A running practice model."""

    def __init__(self, url):
        self.url = url

    def plan(self, *steps, **conditions):
        """Make the next model calls take these steps, such as {"text": "Hello"}."""
        self._call("POST", "plans", {"steps": steps, **conditions})

    def requests(self):
        """List what the app has sent to the model."""
        return self._call("GET", "requests")

    def clear(self):
        """Remove plans and requests."""
        self._call("DELETE", "plans")
        self._call("DELETE", "requests")

    def _call(self, method, path, body=None):
        url = f"{self.url.removesuffix('/v1')}/practice/{path}"
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(url, data, method=method)) as response:
            return json.load(response)


@pytest.fixture(scope="session")
def running_model():
    """Start the practice model once for all tests."""
    command = [sys.executable, "-m", "practice_model", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield Model(process.stdout.readline().split()[-1])
        process.terminate()


@pytest.fixture
def model(running_model):
    """The practice model, without plans and requests of earlier tests."""
    running_model.clear()
    return running_model


@pytest.fixture
def app(model, durable_app):
    """The app of this folder, with no sessions yet: app.http(METHOD, PATH, BODY) calls it."""
    settings = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "practice", "OPENAI_MODEL": "practice"}
    return durable_app(Path(__file__).parent, settings={**settings, "AZURE_OPENAI_ENDPOINT": ""})
