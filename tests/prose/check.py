"""Checks the prose of a source tree: comments, Markdown, names and string literals, and the names of tests."""
import fnmatch
import os
import pathlib
import re

from phrases import GROUPS

# The comment marker of each kind of file; Markdown is prose as a whole.
MARKERS = {".rs": r"//[/!]?", ".lua": r"--+", ".py": r"#", ".md": None}
SKIPPED = {"target", ".git", "node_modules", "corpus"}
INLINE_ALLOW = "wordcheck: allow"
MAX_TEST_NAME = 60


def files(root):
    """Returns the files with prose below the root. Does not enter skipped folders, where other programs delete files."""
    found = [root] if root.is_file() else []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED]
        found += [pathlib.Path(folder, name) for name in names]
    return sorted(f for f in found if f.suffix in MARKERS and f.is_file())


def texts(path):
    """Yields (kind, line number, text) for each piece of prose in the file. Fenced code blocks are not prose."""
    marker, is_fenced = MARKERS[path.suffix], False
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        comment = marker and (re.match(rf"\s*{marker}\s?(.*)", line) or re.search(rf"[;{{}},)]\s+{marker}\s(.*)", line))
        if comment or not marker:
            prose = comment[1] if comment else line.strip()
            if prose.startswith("```"):
                is_fenced = not is_fenced
            elif prose and not is_fenced:
                yield ("comments" if marker else "Markdown"), number, prose
            continue
        is_fenced = False
        if path.suffix == ".rs":
            yield from code_texts(number, line)


def code_texts(number, line):
    """Yields the names that a line of Rust defines, as words, and its string literals that contain a space."""
    for name in re.findall(r"\b(?:fn|struct|enum|trait|type|mod) (\w+)", line):
        words = re.sub(r"([a-z])([A-Z])", r"\1 \2", name).replace("_", " ")
        yield "names", number, words[0].upper() + words[1:]
    for literal in re.findall(r'"((?:[^"\\]|\\.)* (?:[^"\\]|\\.)*)"', line):
        yield "messages", number, literal


def hits(text):
    """Returns the groups whose phrases the text contains, each with its first phrase and the advice."""
    found = ((name, pattern.search(text), advice) for name, advice, pattern, _ in GROUPS)
    return [(name, match[0].strip(), advice) for name, match, advice in found if match]


def test_names(path):
    """Yields (line number, name) for each test function of a Rust file."""
    lines = path.read_text(errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        name = re.match(r"\s*(?:pub )?(?:async )?fn (\w+)", line)
        above = "".join(lines[max(0, number - 6) : number - 1]).rsplit("}", 1)[-1]
        if name and re.search(r"#\[(?:tokio::)?test\b", above):
            yield number, name[1]


class Allowed:
    """The allow file: each line `GLOB | TEXT` accepts lines that contain TEXT in files that match GLOB."""

    def __init__(self, path):
        lines = path.read_text().splitlines() if path.is_file() else []
        self.entries = [[part.strip() for part in line.split("|", 1)] for line in lines if "|" in line and line[0] != "#"]

    def accepts(self, path, text):
        return INLINE_ALLOW in text or any(fnmatch.fnmatch(str(path), glob) and part in text for glob, part in self.entries)


def check(roots, allowed):
    """Returns the lines to report, and (all, bad) lines of each kind."""
    report, counts = [], {}
    for path in (path for root in roots for path in files(root)):
        for kind, number, text in texts(path):
            found = [] if allowed.accepts(path, text) else hits(text)
            total, bad = counts.get(kind, (0, 0))
            counts[kind] = total + 1, bad + bool(found)
            report += [f"{path}:{number}: {group}: `{phrase}` ({advice}) | {text}" for group, phrase, advice in found]
    return report, counts


def long_test_names(roots):
    rust = (path for root in roots for path in files(root) if path.suffix == ".rs")
    return [
        f"{path}:{number}: test name of {len(name)} characters, at most {MAX_TEST_NAME}: {name}"
        for path in rust
        for number, name in test_names(path)
        if len(name) > MAX_TEST_NAME
    ]
