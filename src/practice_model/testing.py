"""The practice model in tests of apps: it replays recorded responses and returns the requests that it received.

The tests that the inspector generates from turns use it.
"""

import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class PlayingModel:
    """A running practice model.

    Attributes:
        url: base URL of its API.
    """

    url: str

    @property
    def settings(self) -> dict[str, str]:
        """Environment variables that connect an app with an OpenAI client to it."""
        return {"OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": "practice", "OPENAI_MODEL": "practice"}

    def requests(self) -> list[dict[str, Any]]:
        """Return the bodies of the requests so far, oldest first."""
        log_entries = cast("list[dict[str, Any]]", self._call_control_route("requests"))
        return [cast("dict[str, Any]", entry["body"]) for entry in log_entries if entry["path"].endswith("/responses")]

    def tool_results(self) -> dict[str, Any]:
        """Return the results of the app's tools: call id → output."""
        results: dict[str, Any] = {}
        for body in self.requests():
            body_input = body.get("input")
            for item in cast("list[dict[str, Any]]", body_input) if isinstance(body_input, list) else ():
                if item.get("type") == "function_call_output":
                    results[str(item["call_id"])] = item["output"]
        return results

    def play(self, names: Sequence[str]) -> None:
        """Replay recordings, one for each request."""
        self._call_control_route("plans", {"steps": [{"recording": name} for name in names]})

    def _call_control_route(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        url = f"{self.url.removesuffix('/v1')}/practice/{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"content-type": "application/json"})  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
            return json.loads(response.read())


@contextmanager
def playing(responses: Sequence[Mapping[str, Any]]) -> Generator[PlayingModel]:
    """Run a practice model that replays recorded responses in order.

    Yields:
        The model, until the context exits.
    """
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{index:04}" for index in range(len(responses))]
        for name, response in zip(names, responses, strict=True):
            (Path(folder) / f"{name}.response.json").write_text(json.dumps(response))
        command = [sys.executable, "-m", "practice_model", "--port", "0", "--recordings", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ourselves
            try:
                line = process.stdout.readline() if process.stdout is not None else ""
                if not line:
                    raise RuntimeError("the practice model did not start: see its output")
                model = PlayingModel(line.rpartition(" ")[2].strip())
                model.play(names)
                yield model
            finally:
                process.terminate()
                process.wait(_TIMEOUT_SECONDS)
