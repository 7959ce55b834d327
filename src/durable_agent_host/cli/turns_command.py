"""The command ``durable-agent-host turns resume``: continue a failed turn of a running host."""

import click

from durable_agent_host.cli.host_client import OK, HostRoutes, host_command


@host_command("resume")
@click.argument("agent")
@click.argument("session")
@click.argument("turn", required=False)
def _resume(host: HostRoutes, agent: str, session: str, turn: str | None) -> int:
    """Resume a failed turn from its journal."""
    turn_id = turn or host.newest_turn(agent, session)
    host.ask(host.session_path(agent, session, f"turns/{turn_id}/resume"), method="POST")
    print(f"turn {turn_id} runs again: durable-agent-host chat {agent} --session {session}{host.options}")
    return OK


turns = click.Group(
    "turns",
    commands=[_resume],
    help="Resume a turn of a running host when it has failed.",
    epilog="Exit status: 0, 2 the command could not be carried out, 130 Ctrl-C. "
    "Without TURN: the one that runs, else the newest.",
)
