"""Timer functions; each notes its runs in a file of the data directory."""

import json
import os
import time
from pathlib import Path

import azure.functions as func

timers = func.Blueprint()


def record_run(name: str, timer: func.TimerRequest, **more: object) -> int:
    path = Path(os.environ["FUNCTIONS_HOST_DATA"], f"{name}.jsonl")
    with path.open("a") as file:
        about = {"at": time.time(), "past_due": timer.past_due, "status": timer.schedule_status}
        file.write(json.dumps(about | more) + "\n")
    return len(path.read_text().splitlines())


@timers.timer_trigger(arg_name="timer", schedule="%EVERY_SECOND%")
def often(timer: func.TimerRequest) -> None:
    """Take longer than the schedule's interval, and fail every time."""
    record_run("often", timer)
    time.sleep(1.2)
    raise ValueError("of no consequence")


@timers.timer_trigger(arg_name="timer", schedule="0 0 0 1 1 *")
def yearly(timer: func.TimerRequest) -> None:
    record_run("yearly", timer)


@timers.timer_trigger(arg_name="timer", schedule="01:00:00", run_on_startup=True, use_monitor=False)
@timers.retry(strategy="fixed_delay", max_retry_count="2", delay_interval="00:00:00")
def at_startup(timer: func.TimerRequest, context: func.Context) -> None:
    """Fail twice."""
    retry = context.retry_context
    if record_run("at_startup", timer, retry=[retry.retry_count, retry.max_retry_count]) < 3:
        raise ValueError("not yet")
