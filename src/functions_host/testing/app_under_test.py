"""The API of tests: apps under test and their orchestrations."""

import asyncio
import importlib
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import Message
from pathlib import Path
from typing import Any

from functions_host.engine.store_records import InstanceRecord
from functions_host.engine.task_hub import InstanceNotFoundError, TaskHub
from functions_host.settings import prepare_environment
from functions_host.testing.app_loading import ProcessState, load_tested_app
from functions_host.testing.crashes import CrashError
from functions_host.testing.running_app import RunningApp

_PATIENCE_SECONDS = 60.0


class OrchestrationFailedError(Exception):
    """An orchestration failed where a result was expected; the message is its output."""


class StuckError(Exception):
    """The app waits for something other than a timer, and the awaited end has not come."""


class HostCrashedError(Exception):
    """The planned crash interrupted this call: as with a real host, its effect may or may not be stored."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The response of an HTTP function."""

    status: int
    headers: Message
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    def json(self) -> Any:
        """Parse the body as JSON."""
        return json.loads(self.body)


class AppUnderTest:
    """An app on its own store with its own clock. Close it after use; the fixture does.

    Guarantee: as deterministic as the app: a method returns once nothing more can happen before the clock moves.

    Args:
        app: the folder of an app, or an instance of ``FunctionApp``, ``DFApp`` or ``Blueprint``.
        data_dir: an empty directory for the store.
        settings: app settings for the time of the test.
        now: initial time of the clock; the present by default.

    Raises:
        StartupError: as ``start`` would raise for the app.
    """

    def __init__(
        self, app: Any, data_dir: Path, *, settings: Mapping[str, str] | None = None, now: datetime | None = None
    ) -> None:
        self._process = ProcessState()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="app-under-test", daemon=True)
        self._thread.start()
        begin = now or datetime.now(UTC).replace(microsecond=0)
        self._running = RunningApp(data_dir, begin.timestamp())
        try:
            prepare_environment(Path.cwd(), data_dir, self._running.port, os.environ)
            self._call(self._running.open(*load_tested_app(app, settings or {})))
        except BaseException:
            self.close()
            raise

    # --- orchestrations ----------------------------------------------------------------------

    def start(self, orchestrator: str, value: Any = None, instance_id: str | None = None) -> "Orchestration":
        """Start an orchestration as ``DurableOrchestrationClient.start_new`` does, and run it until it waits.

        Raises:
            BadRequestError: there is no such orchestrator.
            ConflictError: an instance with this id has not ended.
        """
        body = None if value is None else json.dumps(_dump(value))
        started_id = self._do(lambda: self._running.hub.start(orchestrator, instance_id, body))
        return self.orchestration(started_id)

    def orchestration(self, instance_id: str) -> "Orchestration":
        """Return an orchestration that was started elsewhere, such as by an HTTP function."""
        return Orchestration(instance_id, self, lambda: self._running.hub, self._do)

    # --- entities ----------------------------------------------------------------------------

    def signal_entity(self, name: str, key: str, operation: str, value: Any = None) -> None:
        """Send an operation as ``DurableOrchestrationClient.signal_entity`` does: a falsy value is sent as no value.

        Raises:
            BadRequestError: there is no such entity function.
        """
        body = json.dumps(_dump(value)) if value else None
        self._do(lambda: self._running.hub.signal_entity(name, key, operation, body))

    def entity_state(self, name: str, key: str) -> Any:
        """Read the state of an entity; None when it does not exist."""
        record = self._do(lambda: self._running.hub.find_entity(name, key))
        return None if record is None else json.loads(record.state_json or "null")

    # --- other functions ---------------------------------------------------------------------

    def http(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> HttpAnswer:
        """Call an HTTP function over a loopback connection.

        Args:
            method: such as "GET".
            path: with the route prefix, such as "/api/orders?open=1".
            body: bytes and str are sent unchanged, everything else as JSON; None is no body.
            headers: more headers.
        """
        sent = dict(headers or {})
        if body is not None and not isinstance(body, bytes | str):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        data = body.encode() if isinstance(body, str) else body
        request = urllib.request.Request(self._running.origin + path, data, sent, method=method)  # noqa: S310 - loopback
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as response:  # noqa: S310
                answer = HttpAnswer(response.status, response.headers, response.read())
        except urllib.error.HTTPError as error:
            with error:
                answer = HttpAnswer(error.code, error.headers, error.read())
        self.wait_until_idle()
        return answer

    def run_timer(self, name: str, *, past_due: bool = False) -> bool:
        """Call a timer function with its retry policy; returns whether it succeeded."""
        has_succeeded = self._call(self._running.run_timer(name, past_due=past_due))
        self.wait_until_idle()
        return has_succeeded

    # --- time --------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The time on the app's clock, in UTC."""
        return datetime.fromtimestamp(self._running.now, UTC)

    def advance(self, time: timedelta) -> None:
        """Advance the clock; timers and retries on the way fire at their times, in order."""
        self._call(self._running.advance(time.total_seconds()))

    def wait_until_idle(self) -> None:
        """Wait until nothing more can happen before the clock moves; all other methods end with this."""
        self._call(self._running.wait_until_idle())

    def skip_timer(self) -> bool:
        """Advance the clock to the next timer and run what it triggers; returns False without a timer."""
        return self._call(self._running.skip_timer())

    # --- crashes -----------------------------------------------------------------------------

    @property
    def crashes(self) -> int:
        """Number of crashes so far."""
        return self._running.crashes

    def crash(self) -> None:
        """Kill the engine and restart it on the same store."""
        self._call(self._running.crash())

    def crash_at(self, point: str, times: int = 1) -> None:
        """Plan a crash at a named point of the engine; a new plan replaces the process's last one.

        Args:
            point: "episode.before_commit", "answer.after_commit" (of an activity), "entity.after_call" and so on; the
                message for an unknown one lists all, see ``engine.crash_points``.
            times: crash at the n-th pass of the point.

        Raises:
            ValueError: there is no such point.
        """
        self._running.crash_at(f"{point}:{times}")

    def crash_after(self, commits: int) -> None:
        """Plan a crash right after the n-th commit from now."""
        self._running.crash_after(commits)

    # --- life --------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop everything and restore the process; idempotent."""
        if self._loop.is_closed():
            return
        try:
            self._call(self._running.close())
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._process.restore()

    def _call[Result](self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_PATIENCE_SECONDS)

    def _do[Result](self, step: Callable[[], Result]) -> Result:
        """Run a coroutine on the engine's loop, and wait until it is idle."""

        async def run() -> Result:
            try:
                return step()
            except CrashError:
                raise HostCrashedError("the engine died in this call, as planned, and runs again") from None
            finally:
                await self._running.wait_until_idle()

        return self._call(run())


class Orchestration:
    """One orchestration of an app under test; its properties show the current state."""

    def __init__(
        self, instance_id: str, app: AppUnderTest, hub: Callable[[], TaskHub], do: Callable[[Callable[[], Any]], Any]
    ) -> None:
        self.id = instance_id
        self._app = app
        self._do = do
        self._hub = hub

    @property
    def _record(self) -> InstanceRecord:
        return self._do(lambda: self._hub().find(self.id))

    @property
    def exists(self) -> bool:
        """Return whether it exists: started and not purged."""
        try:
            return bool(self._record)
        except InstanceNotFoundError:
            return False

    @property
    def status(self) -> str:
        """Its runtime status: Pending, Running, Suspended, Completed, Failed, or Terminated."""
        return self._record.runtime_status

    @property
    def output(self) -> Any:
        """Its output, or its failure's message; None before its end."""
        return _load(self._record.output_json)

    @property
    def custom_status(self) -> Any:
        """The value of its last ``set_custom_status``."""
        return _load(self._record.custom_status_json)

    @property
    def history(self) -> list[dict[str, Any]]:
        """Its stored events, oldest first."""
        return [json.loads(text) for text in self._do(lambda: self._hub().read_history(self._hub().find(self.id)))]

    def raise_event(self, name: str, value: Any = None) -> None:
        """Send an event as a POST to ``sendEventPostUri`` does.

        ``DurableOrchestrationClient.raise_event`` encodes twice: pass ``json.dumps(value)`` for the same effect.

        Raises:
            InstanceGoneError: it has ended.
        """
        self._do(lambda: self._hub().raise_event(self.id, name, json.dumps(value)))

    def terminate(self, reason: str = "") -> None:
        """End it."""
        self._do(lambda: self._hub().terminate(self.id, reason))

    def suspend(self) -> None:
        """Suspend it."""
        self._do(lambda: self._hub().set_suspended(self.id, True))

    def resume(self) -> None:
        """Resume it."""
        self._do(lambda: self._hub().set_suspended(self.id, False))

    def wait(self) -> "Orchestration":
        """Skip timers until it has ended.

        Raises:
            StuckError: it waits, but not for a timer.
        """
        while not self._record.is_terminal:
            if not self._app.skip_timer():
                reason = self._do(lambda: self._hub().find_hang(self.id))
                raise StuckError(
                    f"{self.id} is {self.status} and {reason or 'waits for what no timer brings, such as an event'}"
                )
        return self

    def result(self) -> Any:
        """Skip timers until it has ended; returns its output.

        Raises:
            OrchestrationFailedError: it did not complete.
            StuckError: it waits, but not for a timer.
        """
        if self.wait().status != "Completed":
            raise OrchestrationFailedError(f"{self.status}: {self.output}")
        return self.output


def _dump(value: Any) -> str:
    """Encode a value as the Python client does, custom classes included."""
    serialization: Any = importlib.import_module("azure.durable_functions.models.utils.df_serialization")
    return serialization.df_dumps(value)


def _load(text: str | None) -> Any:
    return None if text is None else json.loads(text)
