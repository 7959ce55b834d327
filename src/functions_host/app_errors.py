"""What to do about an app that the worker library refuses: its message, with the fix.

Source: spec section 1.4; the messages are those of ``azure-functions-runtime`` 1.3 and ``azure-functions`` 1.25.
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
    """Say in one sentence which function the worker refused, why, and what to change."""
    text = " ".join(str(error).split())
    fix = next((advice for part, advice in _FIXES if part in text), "")
    if loaded := _LOAD_ERROR.match(text):
        text = f"Function {loaded[1]!r} cannot be loaded: {loaded[2].strip()}"
    elif named := _PREFIX.match(text):
        text = f"Function {named[1]!r} {named[2]}"
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
    """Say in one sentence why the app cannot be imported, and where; missing packages with what installs them."""
    place = _find_place(error, app_dir)
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        fix = f"; install the package that has {package!r} where the host runs, and list it in requirements.txt"
    elif isinstance(error, ValueError | TypeError) and (advice := _advice_for(str(error))):
        fix = f"; {advice}"
    else:
        fix = ""
    message = str(error).rstrip(".")
    return f"The app cannot be imported: {type(error).__name__}: {message} ({place}){fix}."


def _advice_for(text: str) -> str:
    return next((advice for part, advice in _FIXES if part in text), "")


def _find_place(error: Exception, app_dir: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(app_dir)]
    last = (own or frames)[-1]
    return f"{last.filename}:{last.lineno}"
