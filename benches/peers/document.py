"""Writes docs/benchmarks.md and benches/peers/results.md. No number in them was typed by hand.

The page in docs/ has a section for each program, between two markers that the program owns:

    <!-- peers -->
    ## ...
    <!-- /peers -->

A program replaces the text between its markers, or adds its section at the end. The section of this program has the
charts and the goals. results.md has the tables and the details of each measurement. Pictures are
docs/benchmarks/SECTION-*.svg.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

from chart import draw
from install import ROOT
from machine import Machine
from section import Line, Section, Verdict

PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "benches" / "peers" / "results.md"
PICTURES = ROOT / "docs" / "benchmarks"
NAME = "peers"
WIDTH = 120
CONFIG = "config"

WORDS = {True: "met", False: "**missed**", None: "**not measured**"}

SUMMARY = """\
## Compared with nginx, haproxy, Envoy and Caddy

`benches/peers/run` wrote this section and its charts. It installs the peers from packages and envoyproxy/ratelimit from
Go's module proxy, and loads all contestants of a row in turns on the loopback interface. Compare only the ratios within
one row: absolute figures differ between machines, and from hour to hour.

CPU is the user and system time of all threads and processes of a gateway with one worker, including its Redis and its
rate limit service. Tidegate is built by [benches/optimize/run](../benches/optimize/run), as the released x86_64 binary is.
Unless a row states otherwise, the load is wrk with {connections} connections, and the upstream is one nginx that sends 100
bytes. [The results](../benches/peers/results.md) have the method, all tables and the versions.
"""

DETAILS = """\
# Results of benches/peers/run

`benches/peers/run` wrote this page. [docs/benchmarks.md](../../docs/benchmarks.md) shows the charts and the goals.

* The contestants of a row are loaded in turns, round after round, so that changes of the machine's speed affect all of
  them. Compare only the ratios within one row.
* Every gateway has one worker, keeps its connections to clients and upstream open, and writes no access log. It sends
  `X-Forwarded-For` and `X-Forwarded-Proto` to the upstream. Each is configured as its documentation recommends; the
  tables link the files. Tidegate is built with a profile of other requests
  ([benches/optimize](../optimize/load.py)), as the released x86_64 binary is.
* Unless a row states otherwise, the load is wrk with {connections} connections, and the upstream is one nginx that sends 100
  bytes. Tidegate balances its requests between two addresses of this nginx, with health checks and ejection.
* All programs run in a network namespace with the default congestion control of Linux, cubic, if the user may create one.
  With BBR, bodies of 10 MiB took three to four times the CPU time, with Tidegate and with haproxy: in a virtual machine,
  the kernel's timers for segments cost more than all else.
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


def write(sections: list[Section], machine: Machine, conditions: str, connections: int) -> None:
    """Writes the section of the page, its pictures, and the results."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for picture in PICTURES.glob(f"{NAME}-*.svg"):
        picture.unlink()
    for section in sections:
        if section.bars:
            picture_of(section).write_text(draw(section))
    summary = [SUMMARY.format(connections=connections), measured_on(machine), *map(summary_of, sections)]
    write_section(NAME, "\n".join(summary))
    head = [DETAILS.format(connections=connections), conditions_paragraph(machine, conditions)]
    details = [*head, *map(details_of, sections)]
    RESULTS.write_text("\n".join(details).strip() + "\n")


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


def measured_on(machine: Machine) -> str:
    return f"Measured on {machine.date}: {machine.processor}, {machine.cores} cores, {machine.system}.\n"


def conditions_paragraph(machine: Machine, conditions: str) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    text = f"{measured_on(machine).strip()} {conditions} Versions: {versions}."
    return fill(text, WIDTH, break_on_hyphens=False) + "\n"


def summary_of(section: Section) -> str:
    """Returns a heading, the first sentence about the measurement, its picture and its goals."""
    sentence = section.about.split(". ")[0].rstrip(".") + "."
    lines = [f"### {section.title}", "", fill(sentence, WIDTH), ""]
    if section.bars:
        lines += [f"![{section.title}]({picture_of(section).relative_to(PAGE.parent)})", ""]
    return "\n".join([*lines, *map(goal, section.verdicts), ""])


def details_of(section: Section) -> str:
    """Returns a heading, how it was measured, and the table."""
    lines = [f"## {section.title}", "", fill(section.about, WIDTH), ""]
    lines += [markdown_row(["", *section.columns]), markdown_row(["---", *["--:"] * len(section.columns)])]
    lines += [table_row(line, len(section.columns)) for line in section.lines]
    return "\n".join([*lines, ""])


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
