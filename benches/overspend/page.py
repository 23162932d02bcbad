"""Writes a section of docs/benchmarks.md. No number in it was typed by hand."""

from __future__ import annotations

from textwrap import fill
from typing import Callable

from cases import (
    CASES,
    HONEST_TOKENS,
    LETTERS,
    MEAN,
    PROMPT_BOUND,
    PROMPTS,
    REPORTED,
    STREAM_BOUND,
    STREAM_TOKENS,
    STREAMS,
    Result,
    Spent,
)
from document import write_section
from machine import Machine
from model import INPUT

Show = Callable[[Spent], str]

NAME = "overspend"
WIDTH = 120

REPORTED_CASE, STREAMS_CASE, PROMPTS_CASE, HONEST_CASE = CASES

HEAD = f"""\
## Tokens above a budget

[benches/overspend/run](../benches/overspend/run) wrote this section. The upstream is a language model that counts the tokens that it sends, of
input and output. It obeys the bound of a request. The requests of a case are in flight together: the upstream
sends nothing until each of them was rejected, or has arrived.
"""

METHOD = f"""\
* **Five requests** of {", ".join(map(str, REPORTED[:-1]))} and {REPORTED[-1]} tokens, without a bound, with a budget of {REPORTED_CASE.budget}. They are from
  [LiteLLM's issue 18730](https://github.com/BerriAI/litellm/issues/18730), where all passed.
* **{STREAMS} streams** of {STREAM_TOKENS[0] + INPUT} to {STREAM_TOKENS[1] + INPUT} tokens, with a bound of {STREAM_BOUND} for the output, and a budget of {STREAMS_CASE.budget:,}.
* **{PROMPTS} prompts** of {len(LETTERS)} characters of a rare script, with a bound of {PROMPT_BOUND} for the output, and a budget of {PROMPTS_CASE.budget:,}. Each character
  has {len(LETTERS[0].encode())} bytes, which are as many tokens. Estimates of the input assume less.
* **One after the other**, until a request is rejected: {HONEST_TOKENS[0] + INPUT} to {HONEST_TOKENS[1] + INPUT} tokens each, with a bound of {10 * MEAN:,} for the output, ten times
  the mean, and a budget of {HONEST_CASE.budget:,}. **Used** is the part of the budget that such a client can use.

Measured products run on this machine. Simulated ones are the laws below: the table shows what follows from their
algorithm, not from their program. "18 in 1" are 18 tokens in one request. All settings are defaults unless the law names them.
"""


def write(results: list[Result], machine: Machine, seconds: float) -> None:
    laws = [fill(f"* **{one.product.name}** ({one.product.how}). {one.product.law}", WIDTH, subsequent_indent="  ") for one in results]
    failures = [f"* Not measured: {one.product.name}, {failure}" for one in results for failure in one.failures]
    versions = [f"{name} {machine.versions[name]}" for name in ("tidegate", "Redis") if name in machine.versions]
    versions += [f"{one.product.name} {one.product.version()}" for one in results if one.product.version]
    conditions = (
        f"Measured on {machine.date}: {machine.processor}, {machine.cores} cores, {machine.system}. The run took {seconds:.0f} s. "
        f"Versions: {', '.join(versions)}."
    )
    parts = [HEAD, table(results), "", METHOD, *laws, *failures, "", fill(conditions, WIDTH, break_on_hyphens=False)]
    write_section(NAME, "\n".join(parts))


def table(results: list[Result]) -> str:
    """Returns the table in Markdown."""
    heads = ["", "five requests: tokens", "over", f"{STREAMS} streams: tokens", "over", f"{PROMPTS} prompts: tokens", "over", "one after the other: used", "over"]
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *map(cells, results)]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def cells(result: Result) -> list[str]:
    *together, honest = (result.spent.get(case.name) for case in CASES)
    simulated = ", simulated" if result.product.simulate else ""
    return [
        f"{result.product.name}{simulated}",
        *(cell for spent in together for cell in show(spent, lambda one: f"{one.tokens:,} in {one.admitted}")),
        *show(honest, lambda one: f"{one.tokens / one.budget:.0%}"),
    ]


def show(spent: Spent | None, what: Show) -> list[str]:
    return [text(spent, what), text(spent, lambda one: f"{one.over:,}")]


def text(spent: Spent | None, what: Show) -> str:
    return what(spent) if spent else "-"
