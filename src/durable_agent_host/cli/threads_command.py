"""Threads of the Azure AI Agents service, copied into sessions; needs the service's SDK."""

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, cast

from durable_agent_host.cli.host_client import OK, PROBLEMS_FOUND, CommandError, HostRoutes
from durable_agent_host.conversation_json import Conversation, encode
from durable_agent_host.providers.azure_ai_agents.service_client import AgentsService, connect
from durable_agent_host.providers.azure_ai_agents.thread_import import read_thread


def import_threads(host: HostRoutes, agent: str, threads: Sequence[str], *, endpoint: str, api_key: str | None) -> int:
    """Import the named threads, or all of the project.

    Returns:
        The exit status: 0 success, 1 some content was not imported.

    Raises:
        CommandError: the service does not list its threads.
    """
    return asyncio.run(_import(host, agent, threads, endpoint, api_key))


async def _import(host: HostRoutes, agent: str, threads: Sequence[str], endpoint: str, api_key: str | None) -> int:
    sdk = connect(endpoint, api_key=api_key)
    service = AgentsService(sdk)
    status = OK
    async with sdk:
        try:
            threads = threads or await service.threads()
        except Exception as error:
            raise CommandError(f"the service does not list its threads: {error}") from error
        for thread_id in threads:
            status = max(status, await _import_one(host, service, agent, thread_id))
    return status


async def _import_one(host: HostRoutes, service: AgentsService, agent: str, thread_id: str) -> int:
    """Import one thread; a failure does not stop the others."""
    if _exists(host, agent, thread_id):
        print(f"{thread_id}: left alone, the session is there already")
        return OK
    try:
        thread = await read_thread(service, thread_id)
    except Exception as error:  # noqa: BLE001 - the other threads are imported all the same
        print(f"{thread_id}: not taken: {error}", file=sys.stderr)
        return PROBLEMS_FOUND
    if not thread.messages:
        print(f"{thread_id}: left alone, it has no messages")
        return OK
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(encode(Conversation(thread.messages))).encode())
        file.flush()
        file.seek(0)
        answer = cast("dict[str, Any]", host.upload(host.session_path(agent, thread_id, "import"), file))
    summary = f"{len(thread.messages)} messages, {len(thread.files)} files"
    print(f"{answer['session_id']}: imported, {summary}")
    for reason in thread.missing:
        print(f"  not taken: {reason}")
    return PROBLEMS_FOUND if thread.missing else OK


def _exists(host: HostRoutes, agent: str, session_id: str) -> bool:
    try:
        host.ask(host.session_path(agent, session_id))
    except CommandError:
        return False
    return True
