"""Sections of docs/benchmarks.md: every program writes its own, and no number in it was typed by hand.

A program owns what stands between its two markers, and nothing else of the page:

    <!-- peers -->
    ## ...
    <!-- /peers -->

It reads the page, puts its new text between its markers, and writes the page back; if they are not there, its section
is added at the end. What stands outside of all markers is written by people, and holds no numbers. Pictures are
docs/pictures/benchmarks-SECTION-*.svg, so that each program can also replace its own.
"""

from __future__ import annotations

from pathlib import Path

from install import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"


def write_section(name: str, text: str, page: Path = PAGE) -> None:
    """Replaces the section `name`, or adds it."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    old = page.read_text() if page.exists() else ""
    before, found, rest = old.partition(begin)
    if found:
        new = before + section + rest.partition(end)[2]
    else:
        new = f"{old.rstrip()}\n\n{section}\n".lstrip()
    page.write_text(new)
