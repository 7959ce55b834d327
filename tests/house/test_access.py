"""Nothing reads a session, and nothing of the host starts, without somebody's say."""

import ast

from durable_agent_host.durable.app_secret import AppSecret
from durable_agent_host.model.access import AppAccess
from tests.house.source import modules

ACCESS = "durable_agent_host.model.access"
READERS = {"durable_agent_host.durable.session_documents", "durable_agent_host.durable.task_hub"}
"""The module that checks an access before it returns a state, and the durable client that it reads with."""


def calls_by_name(name: str) -> set[str]:
    """List the modules that call a function or method of this name."""
    return {
        module.name
        for module in modules("durable_agent_host")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and (getattr(node.func, "attr", "") == name or getattr(node.func, "id", "") == name)
    }


def test_states_of_sessions_are_read_in_one_module():
    """Everything else reads through it, with an access."""
    assert calls_by_name("read_entity_state") == READERS


def test_an_access_is_never_optional():
    """A parameter or attribute that is an access or a context has no default, and is never None."""
    wrong: list[str] = []
    parameter_count = 0
    for module in modules("durable_agent_host"):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = [*node.args.posonlyargs, *node.args.args]
                defaults = [None] * (len(arguments) - len(node.args.defaults)) + node.args.defaults
                pairs = [
                    *zip(arguments, defaults, strict=True),
                    *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
                ]
                for argument, default in pairs:
                    if argument.annotation is not None and _is_access(argument.annotation):
                        parameter_count += 1
                        if default is not None or "None" in ast.unparse(argument.annotation):
                            wrong.append(f"{module.at(argument.lineno)} {argument.arg}")
            elif isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Attribute)
                and target.attr == "access"
                and not (isinstance(target.value, ast.Name) and target.value.id == "self")
                for target in node.targets
            ):
                wrong.append(f"{module.at(node.lineno)} is set from outside")
    assert parameter_count
    assert not wrong


def _is_access(annotation: ast.expr) -> bool:
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return bool(names & {"Access", "RequestContext"}) and "Callable" not in names


def test_every_access_of_the_app_is_in_one_file():
    """Whoever wants to know what reads sessions of all owners finds it there, with the reason."""
    assert calls_by_name(AppAccess.__name__) == {ACCESS}


def test_orchestrations_of_the_host_are_guarded():
    """They are registered in one function, which lets only the app start them; workflows check their own inputs."""
    assert calls_by_name("orchestration_trigger") == {
        "durable_agent_host.durable.function_registration",
        "durable_agent_host.durable.workflow_functions",
    }
    (registration,) = modules("durable_agent_host.durable.function_registration")
    registering = [
        node
        for node in registration.tree.body
        if isinstance(node, ast.FunctionDef) and "orchestration_trigger" in ast.unparse(node)
    ]
    assert [node.name for node in registering] == ["_register_orchestration"]
    assert f".{AppSecret.guard.__name__}(" in ast.unparse(registering[0])
