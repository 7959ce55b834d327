"""Explains why an app cannot be loaded, and how to fix it.

Source: the messages of ``azure-functions-runtime`` 1.3 and ``azure-functions`` 1.25.
"""

import re
import traceback
from pathlib import Path
from types import TracebackType

_LOAD_ERROR = re.compile(r"cannot load the (\S+) function: (.*)", re.DOTALL)
_PREFIX = re.compile(r"[Ff]unction (\S+) (does not have .*?)\.(?: |$)", re.DOTALL)


def explain_refusal(error: Exception) -> str:
    """Explain in one sentence which function the worker refused, why, and the fix."""
    text = " ".join(str(error).split())
    if load_match := _LOAD_ERROR.match(text):
        text = f"Function {load_match[1]!r} cannot be loaded: {load_match[2].strip()}"
    elif prefix_match := _PREFIX.match(text):
        text = f"Function {prefix_match[1]!r} {prefix_match[2]}"
    elif isinstance(error, NameError):
        text = f"Function {_function_in(error.__traceback__)!r} cannot be loaded: an annotation is not known: {text}"
    else:
        text = f"The app's functions cannot be loaded: {text}"
    return f"{text.rstrip('. ')}."


def _function_in(trace: TracebackType | None) -> str:
    while trace is not None:
        if "func_name" in trace.tb_frame.f_locals:
            return str(trace.tb_frame.f_locals["func_name"])
        trace = trace.tb_next
    return "?"


def explain_import(error: Exception, app_dir: Path) -> str:
    """Explain in one sentence why and where the import failed."""
    location = _find_location(error, app_dir)
    if isinstance(error, ModuleNotFoundError) and error.name:
        fix = "; install its package where the host runs, and list it in requirements.txt"
    else:
        fix = ""
    message = str(error).rstrip(".")
    return f"The app cannot be imported: {type(error).__name__}: {message} ({location}){fix}."


def trace_of_app(error: Exception, app_dir: Path) -> str:
    """Format the traceback of a failed import with the app's own frames, without those of packages and of the host.

    Empty for an error with ``needs_traceback = False``: no code is wrong, and its message says what to set.
    """
    if not getattr(error, "needs_traceback", True):
        return ""
    formatted_trace = traceback.TracebackException.from_exception(error)
    formatted_trace.stack[:] = _own_frames(formatted_trace.stack, app_dir)
    return "".join(formatted_trace.format())


def _own_frames(frames: traceback.StackSummary, app_dir: Path) -> list[traceback.FrameSummary]:
    return [
        frame
        for frame in frames
        if Path(frame.filename).is_relative_to(app_dir) and "site-packages" not in frame.filename
    ]


def _find_location(error: Exception, app_dir: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    last = (_own_frames(frames, app_dir) or frames)[-1]
    return f"{last.filename}:{last.lineno}"
