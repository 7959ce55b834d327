"""The secret of an app, and what is made with it: ids that nobody can compute, and marks of what the app itself began.

Theory of operation. Anybody who reaches a function that starts orchestrations, or has the key of the Durable Task
routes, can start every orchestration of the app with any input. An orchestration of this host acts for whomever its
input names, so it runs only when another orchestration called it, which only the app's own code can do, or when its
input carries a mark: a keyed hash over its name, its instance id and the input.

The secret is a blob in a namespace that is never swept: all processes of the app share the blob store, and the
Durable Task routes, which show the states of entities and the inputs of orchestrations, cannot read it. The first
process that needs the secret draws one; when several do at once, the store keeps the first.
"""

import asyncio
import base64
import hmac
import json
import secrets
from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

from azure.durable_functions import DurableOrchestrationContext

from durable_agent_host.codec.strict_json import names_python_class
from durable_agent_host.encryption.key_check import APP_NAMESPACE, wait_for
from durable_agent_host.errors import RequestError
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.segments.protocol import BlobStore

type MarkPurpose = tuple[str, ...]
"""What a mark is for, and where: the same value is not marked in another place."""
type Orchestrate = Callable[[DurableOrchestrationContext], Generator[Any, Any, Any]]

NOT_STARTED_BY_APP: Final = "was not started by the app"
"""Part of the reason for which an orchestration failed that was started from outside."""

_NAME: Final = "secret"
_MARK: Final = "app_mark"


class AppSecret:
    """The app's secret, read once per process.

    Args:
        open_store: returns the blob store, unencrypted.
    """

    def __init__(self, open_store: Callable[[], BlobStore]) -> None:
        self._open_store = open_store
        self._secret = b""

    async def ready(self) -> None:
        """Read the secret if it has not been read.

        Raises:
            LogError: the blob store does not answer.
        """
        if self._secret:
            return
        store = await asyncio.to_thread(self._open_store)
        if _NAME not in [blob.name async for blob in store.list_blobs(APP_NAMESPACE)]:
            await store.put(APP_NAMESPACE, {_NAME: secrets.token_bytes(32)})
        self._secret = (await store.get(APP_NAMESPACE, [_NAME]))[_NAME]

    def wait(self) -> None:
        """Block until the secret is read: for orchestrations and entities, where a failed step is recorded for good."""
        if not self._secret:
            wait_for(self.ready)

    async def for_ids(self) -> str:
        """Return what makes ids derived from a client's key unguessable; raises what `ready` raises."""
        await self.ready()
        return self._hash(("ids",), None)

    def mark(self, purpose: MarkPurpose, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of a value with the app's mark, which must be `ready`."""
        return {**value, _MARK: self._hash(purpose, value)}

    def has_mark(self, purpose: MarkPurpose, value: Any) -> bool:
        """Return whether a value has the app's mark for a place."""
        unmarked_value = dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}
        if not isinstance(mark := unmarked_value.pop(_MARK, None), str):
            return False
        self.wait()
        return hmac.compare_digest(mark.encode("utf-8", "replace"), self._hash(purpose, unmarked_value).encode())

    def digest(self, purpose: MarkPurpose, value: Mapping[str, Any]) -> str:
        """Return what tells a value from others without revealing it; the secret must be `ready`."""
        return self._hash((*purpose, "digest"), value)

    def guard(self, name: str, run: Orchestrate) -> Orchestrate:
        """Return an orchestration that runs for the app alone."""

        def run_for_app(context: DurableOrchestrationContext) -> Generator[Any, Any, Any]:
            if not context.parent_instance_id and not self._has_own_input(name, context):
                raise RequestError(
                    f"{name!r} {NOT_STARTED_BY_APP}, so nothing was done: call it in an orchestration of the app, with "
                    "context.call_sub_orchestrator, or use the host's routes"
                )
            return (yield from run(context))

        return run_for_app

    def _has_own_input(self, name: str, context: DurableOrchestrationContext) -> bool:
        if names_python_class(str(cast("Any", context)._input)):  # noqa: SLF001 - before the SDK reads it
            return False
        try:
            value: Any = context.get_input()
        except (TypeError, ValueError):  # the SDK parses texts and lists a second time
            return False
        return self.has_mark(start_purpose(name, context.instance_id), value)

    def _hash(self, purpose: MarkPurpose, value: Any) -> str:
        text = json.dumps([purpose, value], sort_keys=True)
        return hmac.digest(self._secret, text.encode(), "sha256").hex()


def start_purpose(name: str, instance_id: str) -> MarkPurpose:
    """Return the place of the input of an orchestration."""
    return ("start", name.lower(), instance_id)


def signal_purpose(entity: str, key: str, operation: str) -> MarkPurpose:
    """Return the place of the input of a signal."""
    return ("signal", entity.lower(), key, operation)


def answer_purpose(turn_id: str) -> MarkPurpose:
    """Return the place of a person's answer to a call of a turn."""
    return ("answer", turn_id)


# Tokens of deferred calls: whoever holds one may give the result of that call, and nothing else.
#
# A token names its call and its expiry, and has a keyed hash over both, so a wrong one is refused before anything is
# read. The session is in it as part of a hash: a token does not tell whose it is.

CALLBACK_PREFIX: Final = "cb_"

_PURPOSE: Final = ("callback",)


class CallbackToken(NamedTuple):
    """The content of a token.

    Attributes:
        log_id: of the turn, a hash of agent, session and turn.
        turn_id: the turn.
        call_id: the pending call's id.
        expires_at: from when on no result is accepted, UTC.
    """

    log_id: str
    turn_id: str
    call_id: str
    expires_at: datetime


def make_token(secret: AppSecret, request: TurnRequest, call_id: str, expires_at: datetime) -> str:
    """Make the token of a call; blocks until the app's secret is read, once per process."""
    secret.wait()
    fields = [request.log_id, request.turn_id, call_id, expires_at.astimezone(UTC).isoformat()]
    content = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")
    return f"{CALLBACK_PREFIX}{content}.{secret.digest(_PURPOSE, {'content': content})}"


def parse_token(secret: AppSecret, token: str) -> CallbackToken | None:
    """Parse a token of the app, whose secret must be ready; None for anything else."""
    content, _, digest = token.removeprefix(CALLBACK_PREFIX).partition(".")
    expected_digest = secret.digest(_PURPOSE, {"content": content})
    if not hmac.compare_digest(digest.encode("utf-8", "replace"), expected_digest.encode()):
        return None
    fields: Any = json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
    log_id, turn_id, call_id, expires_at = fields
    return CallbackToken(log_id, turn_id, call_id, datetime.fromisoformat(expires_at))
