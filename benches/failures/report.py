"""Evaluates the requests of a cell, and writes the table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from faults import Fault
from install import ROOT
from machine import CpuTimes, Machine
from paced import CONNECTIONS, RATE, Result
from process import MeasurementError
from proxies import Proxy

PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- failures: begin -->", "<!-- failures: end -->"

# A request that takes longer is late. A few late requests are also the machine's: a slot counts if a tenth is late.
LATE_SECONDS = 0.25
SLOT_SECONDS = 0.1
LATE_SHARE = 0.1


@dataclass(frozen=True)
class Cell:
    """What the clients of one gateway saw during one fault. `recovered` is the time from the fault until the last
    slot in which a request failed or many were late, or None if there still were some at the end. `missing` is the
    reason for no measurement."""

    failed: int = 0
    p99: float = 0.0
    recovered: float | None = 0.0
    missing: str | None = None

    def __str__(self) -> str:
        if self.missing:
            return self.missing
        recovered = "not" if self.recovered is None else f"{self.recovered:.1f}"
        return f"{self.failed:,} / {self.p99 * 1000:,.0f} / {recovered}"


def cell_of(results: list[Result], fault_at: float, seconds: float) -> Cell:
    if not results:
        raise MeasurementError("no request was sent")
    calm = [result for result in results if result.due < fault_at]
    if failures := sum(is_failed(result) for result in calm if result.due < fault_at - 1):
        raise MeasurementError(f"{failures} requests failed before the fault")
    affected = [result for result in results if result.due + result.took >= fault_at]
    bad = [result.due for result in affected if is_failed(result)] + late_slots(affected)
    recovered = max(0.0, max(bad) - fault_at) if bad else 0.0
    times = sorted(result.took for result in affected)
    return Cell(
        failed=sum(map(is_failed, affected)),
        p99=times[int(len(times) * 0.99)],
        recovered=None if recovered > seconds - fault_at - 0.5 else recovered,
    )


def late_slots(results: list[Result]) -> list[float]:
    """Returns the times of the slots in which many requests were late."""
    slots = Counter(int(result.due / SLOT_SECONDS) for result in results if result.took > LATE_SECONDS)
    return [slot * SLOT_SECONDS for slot, count in slots.items() if count > LATE_SHARE * RATE * SLOT_SECONDS]


def is_failed(result: Result) -> bool:
    return result.status != 200


def table(faults: list[Fault], proxies: list[Proxy], cells: dict[str, list[Cell]]) -> str:
    lines = ["| failed requests / p99 in ms / seconds to recovery | " + " | ".join(proxy.title for proxy in proxies) + " |"]
    lines.append("|---" * (len(proxies) + 1) + "|")
    lines += [f"| {fault.title} | " + " | ".join(map(str, cells[fault.name])) + " |" for fault in faults]
    return "\n".join(lines)


def conditions(machine: Machine, before: CpuTimes, seconds: float) -> str:
    others = CpuTimes.now().others_since(before) / (machine.cores * seconds)
    names = ("nginx", "haproxy", "Envoy")
    versions = ", ".join(f"{name} {machine.versions[name]}" for name in names if name in machine.versions)
    busy = f", {others:.0%} of the CPU time used by other programs" if others >= 0.005 else ""
    return (
        f"{RATE:,} requests/s on {CONNECTIONS} connections; {machine.processor}, {machine.cores} cores{busy}; "
        f"{versions}; {machine.date}."
    )


def write(text: str, about: str) -> None:
    """Replaces the table in the page."""
    page = PAGE.read_text()
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise MeasurementError(f"{PAGE} lacks {BEGIN} and {END}")
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n\n{about}\n{END}{after}")
