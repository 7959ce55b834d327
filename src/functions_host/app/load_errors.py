"""Explains why an app cannot be loaded, and how to fix it.

Source: the messages of ``azure-functions-runtime`` 1.3 and ``azure-functions`` 1.25.
"""

import re
import traceback
from pathlib import Path
from types import TracebackType

_FIXES: tuple[tuple[str, str], ...] = (
    ("does not have a unique function name", "rename one of them, or give it another @app.function_name"),
    ("does not have a trigger", "add a decorator with a trigger, such as @app.route or @app.activity_trigger"),
    ("A trigger was already registered", "make it two functions, each with one trigger"),
    ("More than one", "keep one, and make the others func.Blueprint() that it registers with app.register_functions"),
    (
        "Could not find top level function app",
        "create one at the top of that file, e.g. app = func.FunctionApp(), and register blueprints with it",
    ),
    ("can not be type of FunctionRegister", "make what is registered a func.Blueprint(), not another FunctionApp"),
    (
        'the "context" parameter is expected',
        "take context: func.Context, and give a durable context the name 'context'",
    ),
    ("declared in Python but not in the function definition", "remove them, or add the bindings they belong to"),
    ("declared as bindings but are not present in Python", "add parameters with these names, or correct the decorator"),
    ("has invalid non-type return annotation", "return func.HttpResponse or str"),
    (
        "Python return annotation",
        "return func.HttpResponse or str, or a response of the streaming extension",
    ),
    ('"httpTrigger"', "annotate it as func.HttpRequest, or with the streaming extension as its Request"),
    ('"timerTrigger"', "annotate the timer as func.TimerRequest"),
    ('"mcpToolTrigger"', "annotate the parameter as str, dict, or func.MCPToolContext"),
    ("has invalid non-type annotation", "use a plain class such as dict, list or str, without parameters or None"),
    ("do not match the corresponding function parameter", "correct the annotation, or leave it out"),
    ("does not match its Python annotation", "correct the annotation, or leave it out"),
)
_LOAD_ERROR = re.compile(r"cannot load the (\S+) function: (.*)", re.DOTALL)
_PREFIX = re.compile(r"[Ff]unction (\S+) (does not have .*?)\.(?: |$)", re.DOTALL)


def explain_refusal(error: Exception) -> str:
    """Explain in one sentence which function the worker refused, why, and the fix."""
    text = " ".join(str(error).split())
    fix = next((fix_text for part, fix_text in _FIXES if part in text), "")
    if load_match := _LOAD_ERROR.match(text):
        text = f"Function {load_match[1]!r} cannot be loaded: {load_match[2].strip()}"
    elif prefix_match := _PREFIX.match(text):
        text = f"Function {prefix_match[1]!r} {prefix_match[2]}"
    elif isinstance(error, NameError):
        text = f"Function {_function_in(error.__traceback__)!r} cannot be loaded: an annotation is not known: {text}"
        fix = "import the name where the function is, outside of TYPE_CHECKING"
    else:
        text = f"The app's functions cannot be loaded: {text}"
    return f"{text.rstrip('. ')}; {fix}." if fix else f"{text.rstrip('. ')}."


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
    elif isinstance(error, ValueError | TypeError) and (hint := _find_fix(str(error))):
        fix = f"; {hint}"
    else:
        fix = ""
    message = str(error).rstrip(".")
    return f"The app cannot be imported: {type(error).__name__}: {message} ({location}){fix}."


def trace_of_app(error: Exception, app_dir: Path) -> str:
    """Format the traceback of a failed import from the app's first line on, without the host's own.

    Empty for an error with ``needs_traceback = False``: no code is wrong, and its message says what to set.
    """
    if not getattr(error, "needs_traceback", True):
        return ""
    formatted_trace = traceback.TracebackException.from_exception(error)
    app_frame_indexes = (
        index for index, frame in enumerate(formatted_trace.stack) if Path(frame.filename).is_relative_to(app_dir)
    )
    del formatted_trace.stack[: next(app_frame_indexes, len(formatted_trace.stack))]
    return "".join(formatted_trace.format())


def explain_missing_script(app_dir: Path, script: str) -> str:
    """Explain a folder without the app's script."""
    v1_files = sorted(path.relative_to(app_dir) for path in app_dir.glob("*/function.json"))
    if v1_files:
        return (
            f"{app_dir} is an app of the v1 programming model, with {v1_files[0]} and no {script}, which this host "
            "does not run; move its functions to the v2 model, with decorators in that file, or run it with func start."
        )
    return f"There is no {script} in {app_dir}; start in the app's folder or pass --app DIR."


def _own_frames(error: BaseException, app_dir: Path) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if Path(frame.filename).is_relative_to(app_dir)]


def _find_fix(text: str) -> str:
    return next((fix for part, fix in _FIXES if part in text), "")


def _find_location(error: Exception, app_dir: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    last = (_own_frames(error, app_dir) or frames)[-1]
    return f"{last.filename}:{last.lineno}"
