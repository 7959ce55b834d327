"""Route templates."""

import pytest

from functions_host.web.route_templates import RouteError, RouteTable, compile_template


@pytest.mark.parametrize(
    ("template", "path", "expected"),
    [
        ("api/a/{id}", "api/a/1", {"id": "1"}),
        ("api/a/{id}", "API/A/Xy", {"id": "Xy"}),
        ("api/a/{id}", "api/a", None),
        ("api/a/{id?}", "api/a", {}),
        ("api/a/{id=7}", "api/a", {"id": "7"}),
        ("api/{*rest}", "api", {"rest": ""}),
        ("api/{*rest}", "api/x/y", {"rest": "x/y"}),
        ("{*rest}", "", {"rest": ""}),
        ("a/{n:int}", "a/-5", {"n": "-5"}),
        ("a/{n:int}", "a/5000000000", None),
        ("a/{n:long}", "a/5000000000", {"n": "5000000000"}),
        ("a/{n:range(1,9)}", "a/10", None),
        ("a/{n:min(3)}", "a/3", {"n": "3"}),
        ("a/{n:length(2,3)}", "a/abcd", None),
        ("a/{n:guid}", "a/0f1e2d3c-4b5a-5978-8695-a4b3c2d1e0f1", {"n": "0f1e2d3c-4b5a-5978-8695-a4b3c2d1e0f1"}),
        ("a/{n:bool}", "a/TRUE", {"n": "TRUE"}),
        (r"a/{n:regex(^\d{{3}}$)}", "a/123", {"n": "123"}),
        (r"a/{n:regex(^\d{{3}}$)}", "a/1234", None),
        ("a/{n:int:min(10)?}", "a", {}),
        ("a/{n:int:min(10)?}", "a/9", None),
        ("files/{name}.{ext}", "files/report.pdf", {"name": "report", "ext": "pdf"}),
        ("{a}/{b}", "x/y", {"a": "x", "b": "y"}),
        ("a/{n:regex(^x?=[12]/?$)}", "a/x=1", {"n": "x=1"}),
        ("a/{{b}}/{c}", "a/{b}/1", {"c": "1"}),
    ],
)
def test_templates_match(template: str, path: str, expected: dict[str, str] | None):
    """Each kind of segment takes what ASP.NET Core's routing takes."""
    assert compile_template(template).match(path) == expected


def test_the_more_specific_route_wins():
    """Literals before constrained parameters before plain ones before catch-alls, whatever the order."""
    templates = ["api/{*rest}", "api/{id}", "api/{id:int}", "api/list"]
    table = RouteTable((text, frozenset[str](), text) for text in templates)
    for path, target in [("/api/list", 3), ("/api/5", 2), ("/api/x", 1), ("/api/x/y", 0)]:
        found = table.find("GET", path)
        assert found is not None
        assert found[0] == templates[target]


def test_methods_decide_between_equal_templates():
    """The same template serves different methods by different functions."""
    table = RouteTable([("a", frozenset({"GET"}), 1), ("a", frozenset({"POST"}), 2)])
    assert table.find("POST", "/a") == (2, {})
    assert table.find("PUT", "/a") is None


def test_encoded_slashes_do_not_end_a_segment():
    """Other characters are decoded."""
    table = RouteTable([("a/{x}", frozenset(), 1)])
    assert table.find("GET", "/a/b%2Fc%20d") == (1, {"x": "b%2Fc d"})


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("admin/x", "belongs to the host"),
        ("Runtime/y", "belongs to the host"),
        ("a/{x:nothing}", "constraint 'nothing' does not exist"),
        ("a/{b", "a brace without its counterpart"),
        ("a/b}", "a brace without its counterpart"),
        (r"a/{n:regex(^\d{3}$)}", "inside a parameter, write '{{' and '}}'"),
        ("a/{}", "cannot be read"),
        ("a/{b}/{B}", "the parameter 'b' twice"),
        ("a/{*rest}/b", "a catch-all parameter is not the last segment"),
        ("a/x{*rest}", "a catch-all parameter is not the last segment"),
    ],
)
def test_unsupported_templates_are_rejected(template: str, reason: str):
    """What ASP.NET Core's routing does not take is told with the template, instead of never matching."""
    with pytest.raises(RouteError) as caught:
        compile_template(template)
    assert reason in str(caught.value)
    assert repr(template) in str(caught.value)
