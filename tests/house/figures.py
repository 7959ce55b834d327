"""Sizes of the packages, and how dense and plain they are; ``python -m tests.house.figures`` prints a table."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.house.source import PACKAGES, PLUG_INS, ROOT, SRC

_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

_BANNED_PARTS = """
    said told asked wanted given begun began kept held heard shown made taken listed spent noted refused
    tell tells says begins ends waits goes stands give gives look looks looked hear hears mend mended
    note refuse settle forget forgotten forgetting remember remembered tend stood mint
    beside elsewhere aside unseen unread unserved whole ours theirs mine place places placed home homes
    keeper answers answered advice usual offered objection objections fault faults
    trouble spending stand loose words gone room longest worked
"""
BANNED_PARTS = frozenset(_BANNED_PARTS.split())
"""Words that say neither type nor role, wherever they stand in a name."""

_BANNED_NAMES = """
    one own rest most least others known named waiting work works what why how whose who ended written
    opened rebuilt joined called served woken walked counted copied moved cited lacking settled
    take takes rests reading telling thing things listing doing coming passing meant
"""
BANNED_NAMES = frozenset(_BANNED_NAMES.split())
"""Words that are vague as a whole name, and fine as a part of one."""

_STANDARD = re.compile(
    r"home_?dir|most_recent|left_join|outer_left|whole_number|in_place|question_answer|connection_made|retries_taken|not_?given",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_PARTICIPLE = re.compile(r"_*(?!(?:embed|feed|seed|speed|need)_*$)[a-z]{3,}ed_*")


@dataclass(frozen=True)
class Figures:
    """What was counted in a folder.

    Attributes:
        modules: Python files.
        tokens: without comments, docstrings and layout.
        pairs: assignments of a tuple to a tuple, per 1,000 statements.
        banned_names: names with a banned word, per 1,000 names that are bound.
        participles: names that are one word in -ed, per 1,000.
    """

    modules: int
    tokens: int
    pairs: float
    banned_names: float
    participles: float


def count(folder: Path) -> Figures:
    """Count what is in a folder and below it."""
    modules = tokens = statements = pairs = 0
    names: list[str] = []
    for path in folder.rglob("*.py"):
        if "templates" in path.parts:  # the code of new apps
            continue
        text = path.read_text()
        tree = ast.parse(text)
        modules += 1
        tokens += _count_tokens(text, tree)
        names.append(path.stem)
        wire_members = _wire_members(tree)
        for node in ast.walk(tree):
            statements += isinstance(node, ast.stmt)
            pairs += (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Tuple)
                and isinstance(node.value, ast.Tuple)
            )
            names.extend(() if node in wire_members else _bound_names(node))
    banned_count = sum(map(_is_banned, names))
    participles = sum(_PARTICIPLE.fullmatch(name) is not None for name in names)
    per_name = 1000 / max(len(names), 1)
    return Figures(modules, tokens, pairs * 1000 / max(statements, 1), banned_count * per_name, participles * per_name)


def _wire_members(tree: ast.Module) -> set[ast.AST]:
    """The members of the shapes that are stored or sent: their names are the contract's."""
    return {
        member.target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Wire")
        for member in node.body
        if isinstance(member, ast.AnnAssign)
    }


def _count_tokens(text: str, tree: ast.Module) -> int:
    docstrings = {
        node.body[0].lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False) is not None
    }
    return sum(
        token.type not in _LAYOUT and not (token.type == tokenize.STRING and token.start[0] in docstrings)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def _bound_names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name
        case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
            yield name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name
        case _:
            return


def _is_banned(name: str) -> bool:
    if name.startswith("__") and name.endswith("__"):
        return False
    if name.strip("_").lower() in BANNED_NAMES:
        return True
    return not BANNED_PARTS.isdisjoint(word.lower() for word in _WORD.findall(_STANDARD.sub("", name)))


def main() -> None:
    """Print the table."""
    print(f"{'':34} {'modules':>8} {'tokens':>9} {'pairs/1,000':>12} {'banned/1,000':>13} {'-ed/1,000':>10}")
    for name, folder in [(name, SRC / name) for name in (*PACKAGES, *PLUG_INS)] + [("tests", ROOT / "tests")]:
        found = count(folder)
        print(
            f"{name:34} {found.modules:8,} {found.tokens:9,} {found.pairs:12.1f} {found.banned_names:13.1f} "
            f"{found.participles:10.1f}"
        )


if __name__ == "__main__":
    main()
