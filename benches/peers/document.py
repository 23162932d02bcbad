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
## Compared with nginx, haproxy, Envoy and Caddy

`benches/peers/run` wrote this section and its charts. It installs the peers from packages and envoyproxy/ratelimit from
Go's module proxy, and starts everything on the loopback interface. The contestants of a row are loaded in turns, round
after round, so that changes of the machine's speed affect all of them. Compare only the ratios within one row: absolute
figures differ between machines, and from hour to hour.

* Every gateway has one worker, keeps its connections to clients and upstream open, and writes no access log. It sends
  `X-Forwarded-For` and `X-Forwarded-Proto` to the upstream. Each is configured as its documentation recommends; the
  tables link the files.
* Unless a row states otherwise, the load is wrk with {connections} connections, and the upstream is one nginx that sends 100
  bytes.
* CPU is the user and system time of all threads and processes of the gateway, from `/proc/PID/stat`. It includes the
  gateway's Redis and its rate limit service, if it uses them.
* Before the measurement, each gateway must respond as expected and keep the connection open. A single error or
  unexpected response counts as a failure, and the table reports it. Gateways that reject may admit one request in 1,000.
* Limits that admit everything have a rate of a million per second, so all gateways do their full work and none rejects.
  Redisson's script stores an entry for each permit in use, so an interval of one second favours it most.
* `first / this` is the cost of the first line divided by the cost of this line, in the median round: below 1, the first
  is cheaper. Both costs are from the same round, because the machine's other load changes between rounds. If a ratio is
  within three standard errors (±) of its goal, more rounds follow.
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
