"""The practice model in tests of apps: it plays answers that were recorded, and says what it was asked.

A turn that the inspector copies as a test uses it.
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

_LEAVE_SECONDS = 10.0


@dataclass(frozen=True)
class PlayingModel:
    """A practice model that runs.

    Attributes:
        url: of its API.
    """

    url: str

    @property
    def settings(self) -> dict[str, str]:
        """Settings by which an app with a client of OpenAI's uses it."""
        return {"OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": "practice", "OPENAI_MODEL": "practice"}

    def requests(self) -> list[dict[str, Any]]:
        """Return the bodies of the requests so far, oldest first."""
        read = cast("list[dict[str, Any]]", self._ask("requests"))
        return [cast("dict[str, Any]", one["body"]) for one in read if one["path"].endswith("/responses")]

    def tool_results(self) -> dict[str, Any]:
        """Return what the app's tools have answered: call id → output."""
        found: dict[str, Any] = {}
        for body in self.requests():
            given = body.get("input")
            for item in cast("list[dict[str, Any]]", given) if isinstance(given, list) else ():
                if item.get("type") == "function_call_output":
                    found[str(item["call_id"])] = item["output"]
        return found

    def play(self, names: Sequence[str]) -> None:
        """Play recordings, one for each request."""
        self._ask("plans", {"steps": [{"recording": name} for name in names]})

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        url = f"{self.url.removesuffix('/v1')}/practice/{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"content-type": "application/json"})  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=_LEAVE_SECONDS) as answer:  # noqa: S310
            return json.loads(answer.read())


@contextmanager
def playing(answers: Sequence[Mapping[str, Any]]) -> Generator[PlayingModel]:
    """Run a practice model that gives recorded answers, in their order.

    Args:
        answers: objects of type ``response`` of the Responses API.

    Yields:
        The model, for as long as the context lasts.
    """
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{number:04}" for number in range(len(answers))]
        for name, answer in zip(names, answers, strict=True):
            (Path(folder) / f"{name}.response.json").write_text(json.dumps(answer))
        command = [sys.executable, "-m", "practice_model", "--port", "0", "--recordings", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - ourselves
            try:
                line = process.stdout.readline() if process.stdout is not None else ""
                if not line:
                    raise RuntimeError("the practice model has not started: see what it has printed")
                model = PlayingModel(line.rpartition(" ")[2].strip())
                model.play(names)
                yield model
            finally:
                process.terminate()
                process.wait(_LEAVE_SECONDS)
