"""Sections of docs/benchmarks.md: every program writes its own, and no number in it was typed by hand.

A program owns what stands between its two markers, and nothing else of the page:

    <!-- peers -->
    ## ...
    <!-- /peers -->

It reads the page, puts its new text between its markers, and writes the page back; if they are not there, its section
is added at the end. What stands outside of all markers is written by people, and holds no numbers. Pictures are
docs/benchmarks/SECTION-*.svg, so that each program can replace its own, too.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

from chart import draw
from install import ROOT
from machine import Machine
from section import Line, Section, Verdict

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "benchmarks"
NAME = "peers"
WIDTH = 120
CONFIG = "../benches/peers/config"

WORDS = {True: "met", False: "**missed**", None: "**not measured**"}

ABOUT = """\
## Beside nginx, haproxy, Envoy and Caddy

`benches/peers/run` wrote this section and its pictures. It installs the peers from packages, envoyproxy/ratelimit from
Go's module proxy, starts everything on the loopback, and loads the contestants of a row in turns, round after round, so
that none has the quiet moments of the machine alone. What to look at are the ratios within one row: absolute
figures differ from machine to machine, and from hour to hour.

* All have one worker, keep their connections to clients and upstream, write no access log, and tell the upstream who
  asked by `X-Forwarded-For` and `X-Forwarded-Proto`. Each is set up as its own documentation recommends: the files are
  linked in the tables.
* The load is wrk with {connections} connections, the upstream one nginx that answers 100 bytes to everybody, unless a
  row says otherwise.
* CPU is the user and system time of all threads and processes of the gateway, and of its Redis and the service
  that asks it where it has them, from `/proc/PID/stat`.
* Before it is measured, each must answer as expected and keep the connection. One error, or one answer of another kind,
  and it has failed and is told as such. Those that refuse may let one request in a thousand pass.
* Limits that let everything pass have a rate of a million a second, so that all do their whole work and none refuses.
  Redisson's script keeps an entry for each permit that is in use, so an interval of one second is the kindest to it.
* `first / this` is the cost of the first line by that of this one, in the median round: below 1, the first is cheaper. Ratios
  are of two slices of one round, since what the machine has to do otherwise changes from round to round. Where it is not clear
  whether a goal is met, as the ratio is less than three of its standard errors (±) from the bound, more rounds follow.
"""


def write(sections: list[Section], machine: Machine, how: str, connections: int) -> None:
    """Writes the section of the page, and its pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for picture in PICTURES.glob(f"{NAME}-*.svg"):
        picture.unlink()
    for section in sections:
        if section.bars:
            picture_of(section).write_text(draw(section))
    parts = [ABOUT.format(connections=connections), told_of(machine, how), *(told(section) for section in sections)]
    write_section(NAME, "\n".join(parts))


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


def told_of(machine: Machine, how: str) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    where = f"Measured on {machine.date}: {machine.processor}, {machine.cores} cores, {machine.system}."
    return fill(f"{where} {how} Versions: {versions}.", WIDTH, break_on_hyphens=False) + "\n"


def told(section: Section) -> str:
    """A heading, a picture, a table and what became of the goals."""
    lines = [f"### {section.title}", "", fill(section.about, WIDTH), ""]
    if section.bars:
        lines += [f"![{section.title}]({picture_of(section).relative_to(PAGE.parent)})", ""]
    lines += [markdown_row(["", *section.columns]), markdown_row(["---", *["--:"] * len(section.columns)])]
    lines += [table_row(line, len(section.columns)) for line in section.lines]
    lines += ["", *(goal(verdict) for verdict in section.verdicts), ""]
    return "\n".join(lines)


def picture_of(section: Section) -> Path:
    return PICTURES / f"{NAME}-{section.name}.svg"


def table_row(line: Line, columns: int) -> str:
    name = f"[{line.name}]({CONFIG}/{line.config})" if line.config else line.name
    if line.failure:
        return markdown_row([name, f"**failed**: {line.failure}", *[""] * (columns - 1)])
    return markdown_row([name, *line.cells])


def markdown_row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |".replace("  ", " ")


def goal(verdict: Verdict) -> str:
    return f"* {verdict.goal}. Measured: {verdict.measured}: {WORDS[verdict.met]}."
