"""Writes docs/accuracy.md. No number in it was typed by hand."""

from __future__ import annotations

from textwrap import fill

import picture
from install import ROOT
from machine import Machine
from product import SECOND
from scenarios import (
    FAILOVER_RATE,
    INSTANCES,
    LATE_SECONDS,
    LEAD_SECONDS,
    OUTAGE_SECONDS,
    RATE,
    STEADY_SECONDS,
    Result,
)
from sentinel import DOWN_AFTER
from waits import MAX_GAP, WAITS

PAGE = ROOT / "docs" / "accuracy.md"
PICTURE = ROOT / "docs" / "benchmarks" / "accuracy.svg"
WIDTH = 120

HEAD = f"""\
# Accuracy

How exactly rate limiters keep a limit of {SECOND.rate} requests per second. [benches/accuracy/run](../benches/accuracy/run) wrote this page and
its picture in one run.

![Permits in the fullest second]({PICTURE.relative_to(PAGE.parent)})
"""

METHOD = f"""\
## The columns

* **Over the limit**: permits beyond {SECOND.rate} in the fullest second, which starts at any moment and is 1 ms shorter, since limiters count in
  milliseconds. A measured request counts if it began and ended in it, so at least this number of permits was granted in it.
* **1, 2, 4 instances** receive {RATE:,} requests per second in turns, for {STEADY_SECONDS} s from the middle of a wall-clock second, for one limit. If one of
  100 requests was {LATE_SECONDS * 1_000:.0f} ms late because of other load, all were sent again.
* **Granted**: permits in these {STEADY_SECONDS} s with one instance. The limit permits {SECOND.rate * STEADY_SECONDS}.
* **A window's end**: one request at the start of a wall-clock second, and {RATE:,} per second from {LEAD_SECONDS * 1_000:.0f} ms before its end. A client can
  choose these times.
* **Failover**: two instances receive {FAILOVER_RATE} requests per second, and the primary of their store is killed. A sentinel replaces it after
  {DOWN_AFTER} ms. Simulated products have no store for {OUTAGE_SECONDS} s. Errors are responses other than 200 and 429. "-": the product
  has no store, or is not measured here.
* **Wait**: the announced wait minus the true one, of {WAITS} rejected requests within a second, with a limit of {SECOND.rate} per minute. Half of the
  permits are taken 5 s before the others. A negative value is too early: a client that waits that long is rejected again.
  Measured values can be {MAX_GAP * 1_000:.0f} ms too large. "-": the response announces no wait.

## The products

Measured products run on this machine. Simulated ones are the laws below in virtual time: the page shows what follows from their
algorithm, not from their program. All settings are defaults unless the law names them.
"""

FOOT = """\
## Limits of this page

* All instances have the same clock. Products that use the clocks of their instances exceed their limits by more if these differ.
* The load is even. Which instance receives a request matters for products that limit each instance.
* [guarantees.md](guarantees.md) lists what Tidegate guarantees, each with its test; [benchmarks.md](benchmarks.md) has the costs.
"""


def write(results: list[Result], machine: Machine, seconds: float) -> None:
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture.draw(results))
    laws = [fill(f"* **{one.product.name}** ({one.product.how}). {one.product.law}", WIDTH, subsequent_indent="  ") for one in results]
    names = ("tidegate", "nginx", "haproxy", "Envoy", "envoyproxy/ratelimit", "Redis")
    versions = ", ".join(f"{name} {machine.versions[name]}" for name in names if name in machine.versions)
    conditions = (
        f"Measured on {machine.date}: {machine.processor}, {machine.cores} cores, {machine.system}. The run took {seconds:.0f} s. "
        f"Versions: {versions}."
    )
    failures = [f"* {one.product.name}: {failure}" for one in results for failure in one.failures]
    if failures:
        failures = ["## Not measured", "", *failures, ""]
    parts = [HEAD, table(results), "", METHOD, "\n".join(laws), "", *failures, FOOT, fill(conditions, WIDTH, break_on_hyphens=False)]
    PAGE.write_text("\n".join(parts).strip() + "\n")


def table(results: list[Result]) -> str:
    """Returns the table in Markdown."""
    names = [f"over the limit, {number} instance{'s' * (number > 1)}" for number in INSTANCES]
    heads = ["", *names, "granted", "over, a window's end", "over, failover", "errors, failover", "wait"]
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *map(cells, results)]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def cells(result: Result) -> list[str]:
    over = [text(result.over(result.fullest.get(number))) for number in INSTANCES]
    ends = [text(result.over(result.at_end)), text(result.over(result.failover)), text(result.errors)]
    errors = result.wait_errors
    # Without a negative zero.
    wait = " to ".join(f"{round(one, 2) + 0.0:+.2f}" for one in (min(errors), max(errors))) + " s" if errors else "-"
    star = "" if result.product.start else ", simulated"
    return [f"{result.product.name}{star}", *over, text(result.totals.get(1)), *ends, wait]


def text(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
