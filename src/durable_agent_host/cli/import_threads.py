"""The command ``durable-agent-host import-threads``: imports threads of the Azure AI Agents service as sessions."""

import argparse
import asyncio
import json
import sys
import tempfile
from importlib.util import find_spec
from typing import Any, cast

from durable_agent_host.cli.host_routes import (
    OK,
    PROBLEMS_FOUND,
    CommandError,
    HostRoutes,
    add_host_arguments,
    carry_out,
)


def add_thread_command(commands: Any) -> None:
    """Add ``import-threads`` to the command line.

    Args:
        commands: the program's subparsers.
    """
    parser = commands.add_parser(
        "import-threads",
        help="copy threads of the Azure AI Agents service into sessions of a running host",
        description="Copy threads with messages, steps and files into sessions that any agent of the host continues.",
        epilog="Exit status: 0 all was taken, 1 some was not, 2 the command could not be carried out. "
        "A thread whose session exists is left alone, so the command can be repeated.",
    )
    parser.add_argument(
        "--endpoint", required=True, help="of the project: https://….services.ai.azure.com/api/projects/…"
    )
    parser.add_argument("--api-key", help="instead of the credential that azure-identity finds")
    add_host_arguments(parser)
    parser.add_argument("--all", action="store_true", help="all threads of the project")
    parser.add_argument("agent", help="the agent of the host that the sessions are for")
    parser.add_argument("thread", nargs="*", help="ids of threads; a thread's id becomes its session's")


def run_thread_command(arguments: argparse.Namespace) -> int:
    """Run the command.

    Args:
        arguments: parsed as defined by `add_thread_command`.

    Returns:
        The exit status.
    """

    def work(host: HostRoutes) -> int:
        _check(arguments)
        host.ask("/agents")
        return asyncio.run(_import(host, arguments))

    return carry_out("import-threads", work, arguments)


def _check(arguments: argparse.Namespace) -> None:
    if bool(arguments.thread) == arguments.all:
        raise CommandError("name threads by their ids, or give --all")
    if not find_spec("azure.ai.agents"):
        raise CommandError("the SDK is not installed: pip install 'durable-agent-host[azure-ai-agents]'")


async def _import(host: HostRoutes, arguments: argparse.Namespace) -> int:
    from durable_agent_host.providers.azure_ai_agents.service import (  # noqa: PLC0415 - no other command needs the SDK
        AgentsService,
        connect,
    )

    sdk = connect(arguments.endpoint, api_key=arguments.api_key)
    service = AgentsService(sdk)
    status = OK
    async with sdk:
        try:
            threads: list[str] = await service.threads() if arguments.all else arguments.thread
        except Exception as error:
            raise CommandError(f"the service does not list its threads: {error}") from error
        for thread_id in threads:
            status = max(status, await _import_one(host, service, arguments.agent, thread_id))
    return status


async def _import_one(host: HostRoutes, service: Any, agent: str, thread_id: str) -> int:
    """Import one thread; a failure does not stop the others."""
    from durable_agent_host.providers.azure_ai_agents.whole_threads import read_thread  # noqa: PLC0415 - the same
    from durable_agent_host.transcripts import Conversation, encode  # noqa: PLC0415 - the same

    if _exists(host, agent, thread_id):
        print(f"{thread_id}: left alone, the session is there already")
        return OK
    try:
        moved = await read_thread(service, thread_id)
    except Exception as error:  # noqa: BLE001 - the other threads are imported all the same
        print(f"{thread_id}: not taken: {error}", file=sys.stderr)
        return PROBLEMS_FOUND
    if not moved.messages:
        print(f"{thread_id}: left alone, it has no messages")
        return OK
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(encode(Conversation(moved.messages))).encode())
        file.flush()
        file.seek(0)
        answer = cast("dict[str, Any]", host.upload(host.session_path(agent, thread_id, "import"), file))
    taken = f"{len(moved.messages)} messages, {len(moved.files)} files"
    print(f"{answer['session_id']}: imported, {taken}")
    for told in moved.missing:
        print(f"  not taken: {told}")
    return PROBLEMS_FOUND if moved.missing else OK


def _exists(host: HostRoutes, agent: str, session_id: str) -> bool:
    try:
        host.ask(host.session_path(agent, session_id))
    except CommandError:
        return False
    return True
