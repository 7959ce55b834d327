"""The command ``durable-agent-host dev``: the embedded host for whoever writes an app."""

import os
import re
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from durable_agent_host.cli.host_command import HINT, read_urls, start_module
from durable_agent_host.telemetry import DEV

_PRACTICE: Final = {"OPENAI_API_KEY": "practice", "OPENAI_MODEL": "practice"}
_KEYS: Final = (
    *("OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "FOUNDRY_PROJECT_ENDPOINT", "AZURE_AI_AGENTS_ENDPOINT"),
    *("ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"),
)
"""What an app has set that calls a model's service."""
_KEY_LINE: Final = re.compile(rf'^(?!\s*//).*"(?:{"|".join(_KEYS)})"\s*:\s*"[^"]', re.MULTILINE)


@click.command("dev", context_settings={"ignore_unknown_options": True})
@click.option("--app", default=".", metavar="DIR", help="the app's folder (default: .)")
@click.option("--plan", metavar="FILE", help="let the practice model answer by the plans of this YAML file")
@click.option("--no-open", is_flag=True, help="do not open the inspector in the browser")
@click.option("-v", "--verbose", is_flag=True, help="show all log records, and requests")
@click.argument("host_arguments", metavar="[OPTIONS-OF-START]", nargs=-1, type=click.UNPROCESSED)
def dev(*, app: str, plan: str | None, no_open: bool, verbose: bool, host_arguments: Sequence[str]) -> None:
    """Run a function app while you write it.

    The host starts again when a file of the app changes; its sessions stay. Without a key, the practice model answers.
    Other options are those of 'start'.
    """
    environment = {**os.environ, **HINT, **({} if verbose else {DEV: "1"})}
    processes: list[subprocess.Popen[str]] = []

    def stop(*_: object) -> None:
        for process in processes:
            process.terminate()

    signal.signal(signal.SIGTERM, stop)
    try:
        if plan or not _has_key(Path(app)):
            model = start_module(["practice_model", "--port", "0", *(["--plan", plan] if plan else [])], environment)
            processes.append(model)
            url = next(read_urls(model), "")
            if not url:
                sys.exit(model.wait())
            environment |= dict.fromkeys(_KEYS, "") | _PRACTICE | {"OPENAI_BASE_URL": url}
            source = f"plans of {plan}" if plan else "no key of a model's service is set"
            print(f"Practice model: {url} ({source})", flush=True)
        options = ["start", "--reload", "--app", app, *(["-v"] if verbose else []), *host_arguments]
        host = start_module(["functions_host", "--called", "durable-agent-host", *options], environment)
        processes.append(host)
        is_open = no_open or not sys.stdout.isatty()
        for url in read_urls(host, show=True):
            if not is_open:
                is_open = webbrowser.open(f"{url}/api/inspector")
        sys.exit(host.wait())
    except KeyboardInterrupt:
        sys.exit(processes[-1].wait())
    finally:
        stop()
        for process in processes:
            process.wait()


def _has_key(app_dir: Path) -> bool:
    """Return whether the environment or the app's ``local.settings.json``, which may have comments, has a key."""
    settings = app_dir / "local.settings.json"
    text = settings.read_text(encoding="utf-8-sig", errors="replace") if settings.is_file() else ""
    return any(os.environ.get(name) for name in _KEYS) or _KEY_LINE.search(text) is not None
