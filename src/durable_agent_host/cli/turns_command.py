"""The commands ``durable-agent-host turns …``: what turns of a running host have done, and are doing."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

import click

from durable_agent_host.cli.content_formatting import format_cost
from durable_agent_host.cli.host_client import OK, PAGE, PROBLEMS_FOUND, HostRoutes, TurnEvents, host_command
from durable_agent_host.cli.rendering import Screen, TurnView, named_call, wait_text
from durable_agent_host.turn import turn_events

Step = Mapping[str, Any]


@host_command("tail")
@click.option("--json", "as_json", is_flag=True, help="an event a line: id, event, data")
@click.argument("agent")
@click.argument("session")
@click.argument("turn", required=False)
def _tail(host: HostRoutes, as_json: bool, agent: str, session: str, turn: str | None) -> int:
    """Follow a turn live from its first event to its end."""
    screen = Screen()
    view = TurnView(screen)
    events = TurnEvents(
        host,
        agent,
        session_id=session,
        turn_id=turn or host.newest_turn(agent, session),
        on_remark=(lambda _: None) if as_json else view.show_remark,
    )
    status = OK
    try:
        for event in events:
            if as_json:
                print(json.dumps({"id": event.id, "event": event.name, "data": event.data}), flush=True)
            else:
                view.show(event)
            if event.name == turn_events.TURN_FAILED:
                status = PROBLEMS_FOUND
    except KeyboardInterrupt:
        screen.break_line()
        raise
    return status


@host_command("resume")
@click.argument("agent")
@click.argument("session")
@click.argument("turn", required=False)
def _resume(host: HostRoutes, agent: str, session: str, turn: str | None) -> int:
    """Resume a failed turn from its journal."""
    turn_id = turn or host.newest_turn(agent, session)
    host.ask(host.session_path(agent, session, f"turns/{turn_id}/resume"), method="POST")
    print(f"turn {turn_id} runs again: durable-agent-host turns tail {agent} {session} {turn_id}")
    return OK


@host_command("show")
@click.option("--json", "as_json", is_flag=True, help="as the route gives it")
@click.argument("agent")
@click.argument("session")
@click.argument("turn", required=False)
def _show(host: HostRoutes, as_json: bool, agent: str, session: str, turn: str | None) -> int:
    """Print the steps of a turn."""
    path = host.session_path(agent, session, f"turns/{turn or host.newest_turn(agent, session)}")
    state = host.ask(path)
    steps = list(_steps(host, path))
    if as_json:
        print(json.dumps(state | {"steps": steps}, indent=1))
        return OK
    screen = Screen()
    for line in (*_summary(state), *(_step_line(step, state["created_at"]) for step in steps)):
        screen.line(line)
    return PROBLEMS_FOUND if state["status"] == "failed" else OK


def _steps(host: HostRoutes, path: str) -> Iterator[Step]:
    cursor: str | None = ""
    while cursor is not None:
        query = {"limit": PAGE} | ({"cursor": cursor} if cursor else {})
        page = host.ask(f"{path}/steps?{urlencode(query)}")
        yield from page["steps"]
        cursor = page["cursor"]


def _summary(turn: Mapping[str, Any]) -> Iterator[str]:
    yield f"turn {turn['turn_id']} of session {turn['session_id']}, agent {turn['agent']}: {turn['status']}"
    took = _seconds(turn["created_at"], turn.get("ended_at"))
    yield f"  asked {turn['created_at']}{f', ended after {took:.3f} s' if took is not None else ''}"
    if usage := turn.get("usage"):
        counts = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in usage.items() if count)
        yield f"  {counts}"
    if (cost := turn.get("spent", {}).get("cost")) is not None:
        yield f"  cost {format_cost(cost)}"
    if error := turn.get("error"):
        yield f"  {error.get('type')}: {error.get('message')}"
    for call in turn.get("pending_calls") or ():
        yield f"  {named_call(call)} {wait_text(call)}"


def _step_line(step: Step, created_at: str) -> str:
    after = _seconds(created_at, step.get("began_at"))
    took = _seconds(step.get("began_at"), step.get("ended_at"))
    times = f"{'' if after is None else f'+{after:.3f}':>10} {'' if took is None else f'{took:.3f} s':>10}"
    return f"{times}  {_ROWS.get(step['kind'], _fields)(step)}"


def _seconds(begin: str | None, end: str | None) -> float | None:
    if not begin or not end:
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def _fields(step: Step) -> str:
    return f"{step['kind']} {json.dumps({name: value for name, value in step.items() if name != 'kind'})}"


def _wait(step: Step) -> str:
    if step["reason"] != "person":
        return f"waits: {step.get('cause') or step['reason']}"
    decisions = (f"{named_call(call)} {_format_decision(call.get('answer'))}" for call in step.get("calls") or ())
    return f"waits for answers: {', '.join(decisions)}"


def _format_decision(answer: Step | None) -> str:
    if answer is None:
        return "has no answer yet"
    if "approved" in answer:
        return "approved" if answer["approved"] else "denied"
    return "has an error" if "error" in answer else "has its result"


def _attempt(step: Step) -> str:
    replay_counts = step.get("found_model_calls") or 0, step.get("found_tool_calls") or 0
    replays = (
        f", replays {replay_counts[0]} model calls and {replay_counts[1]} tool calls" if any(replay_counts) else ""
    )
    return f"attempt {step['number']}: {step['ended']}{replays}"


def _model_call(step: Step) -> str:
    usage: Step = step.get("usage") or {}
    tokens = f", {usage.get('input_token_count', 0)} tokens in, {usage.get('output_token_count', 0)} out"
    return (
        f"  model call {step['position']} {step.get('model') or ''}: {step.get('outcome') or 'streams'}"
        f"{tokens if usage else ''}{f', cost {format_cost(step["cost"])}' if 'cost' in step else ''}"
    )


def _inner_call(step: Step) -> str:
    if "reason" not in step:
        return _model_call({"position": step["path"], "outcome": "completed", **step})
    consequence = f"retry in {step['wait_seconds']} s" if "wait_seconds" in step else "failed"
    return f"  model call {step['path']}: {consequence}: {step['reason']}"


def _tool_call(step: Step) -> str:
    result = " ".join(str(step.get("result") or "").split())
    in_doubt = ", in doubt: it was running when an attempt crashed" if step.get("in_doubt") else ""
    result_text = f": {result[:_RESULT]}{' …' if len(result) > _RESULT else ''}" if result else ""
    return f"  tool {named_call(step)}: {step.get('outcome') or 'runs'}{in_doubt}{result_text}"


_RESULT: Final = 120
"""Maximum characters of a tool's result in a line."""


def _end(step: Step) -> str:
    error = step.get("error")
    return f"end: {step['status']}{f', {error.get("type")}: {error.get("message")}' if error else ''}"


_ROWS: Final[dict[str, Callable[[Step], str]]] = {
    "wait": _wait,
    "attempt": _attempt,
    "model_call": _model_call,
    "inner_call": _inner_call,
    "tool_call": _tool_call,
    "retry": lambda step: f"  retry in {step['wait_seconds']} s: {step['reason']}",
    "restart": lambda step: f"  clients were told to discard text from event {step['discard_from']} on",
    "end": _end,
}
"""Kind of a step → its line."""


turns = click.Group(
    "turns",
    commands=[_resume, _show, _tail],
    help="Show the steps of a turn of a running host, follow its events, or resume it when it has failed.",
    epilog="Exit status: 0, 1 the turn has failed, 2 the command could not be carried out, 130 Ctrl-C. "
    "Without TURN: the one that runs, else the newest.",
)
