"""What was measured, as text for a terminal."""

from __future__ import annotations

from row import Measured, Verdict

WORDS = {True: "met", False: "MISSED", None: "not measured"}


def table(measured: Measured) -> str:
    lines = [measured.row.title, f"  {'':<26} {'us of CPU per request':>24} {'requests/s':>32}"]
    spread = f"{'min':>8} {'median':>8} {'max':>8}"
    lines.append(f"  {'':<26} {spread} {spread.replace('min', '   min', 1):>32}")
    first = measured.results[0]
    for result in measured.results:
        if result.failure:
            lines.append(f"  {result.name:<26} FAILED: {result.failure}")
            continue
        cost, rate = result.cost, result.rate
        costs = f"{cost.least:>8.2f} {cost.median:>8.2f} {cost.most:>8.2f}"
        rates = f"{rate.least:>10.0f} {rate.median:>10.0f} {rate.most:>10.0f}"
        ratio = f"{first.cost.median / cost.median:>6.2f}" if first.slices else ""
        parts = ", ".join(f"{name} {each:.1f}" for name, each in result.processes.items())
        lines.append(f"  {result.name:<26} {costs} {rates} {ratio}   {parts if len(result.processes) > 1 else ''}".rstrip())
        lines += [f"  {'':<26} {note}" for note in result.notes]
    lines += [verdict_line(verdict) for verdict in measured.verdicts()]
    return "\n".join(lines)


def verdict_line(verdict: Verdict) -> str:
    return f"  goal {WORDS[verdict.met]}: {verdict.text}; measured: {verdict.ratio or 'nothing'}"
