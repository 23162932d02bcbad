"""Formats a section as text for a terminal."""

from __future__ import annotations

from section import Section, Verdict

WORDS = {True: "met", False: "MISSED", None: "NOT MEASURED"}


def table(section: Section) -> str:
    """Formats the table in aligned columns, followed by the failures and the verdicts."""
    rows = [["", *section.columns]] + [[line.name, *line.cells] for line in section.lines if not line.failure]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [section.title]
    for name, *cells in rows:
        right = [cell.rjust(width) for cell, width in zip(cells[:-1], widths[1:])]
        lines.append(("  " + "  ".join([name.ljust(widths[0]), *right, cells[-1]])).rstrip())
    lines += [f"  {line.name} FAILED: {line.failure}" for line in section.lines if line.failure]
    return "\n".join(lines + [verdict_line(verdict) for verdict in section.verdicts]) + "\n"


def verdict_line(verdict: Verdict) -> str:
    return f"  goal {WORDS[verdict.met]}: {verdict.goal}; measured: {verdict.measured}"
