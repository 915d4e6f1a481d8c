"""Nothing in the repository points into somebody's machine."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Folders under which people keep their own files; the look-behind lets relative paths and URLs pass.
MACHINE_PATH = re.compile(r"(?<![\w./~:-])/(?:home|root|work|Users|mnt|workspace|scratch)/[\w./-]+")
WINDOWS_PATH = re.compile(r"\b[A-Z]:\\\\?\w")


def tracked_files() -> list[Path]:
    """Return what git tracks or would track; all files where the tree is not a git checkout (an sdist)."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        return [p for folder in ("src", "csrc", "tests", "docs") for p in (ROOT / folder).rglob("*") if p.is_file()]
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def machine_paths(text: str) -> list[str]:
    return [m.group() for pattern in (MACHINE_PATH, WINDOWS_PATH) for m in pattern.finditer(text)]


def test_no_machine_paths() -> None:
    files = tracked_files()
    assert len(files) > 20
    found = []
    for path in files:
        if path == Path(__file__):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # binary
        found += [f"{path.relative_to(ROOT)}: {hit}" for hit in machine_paths(text)]
    assert not found, "\n".join(found)


def unended_remedies(source: str) -> list[int]:
    """Lines of errors whose remedy is a text that ends with a word, and not as a sentence does."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "remedy":
            last = node.value.values[-1] if isinstance(node.value, ast.JoinedStr) else node.value
            if isinstance(last, ast.Constant) and re.search(r"[\w)]$", str(last.value)):
                found.append(node.value.lineno)
    return found


def test_remedies_are_sentences() -> None:
    sources = sorted((ROOT / "src").rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}:{line}" for path in sources for line in unended_remedies(path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


def test_negative_control_a_remedy_that_is_no_sentence_is_seen() -> None:
    assert unended_remedies("f(remedy='Give one')\nf(remedy='Give one.')\nf(remedy=f'Give {x} or more')") == [1, 3]


def test_negative_control_a_machine_path_is_seen() -> None:
    assert machine_paths('open("/home/someone/model.gguf")') == ["/home/someone/model.gguf"]
    root = "/" + "root"  # written apart, so that this file holds none
    assert machine_paths(f"see {root}/x") == [f"{root}/x"]
    assert machine_paths("C:\\Users") != []
    assert machine_paths("https://example.org/home/page and tests/work/x and ~" + f"{root}/x") == []
