"""Runs the checks of checks/ and lists the failed ones; see `run`. Exits with 69 if none failed and some could not run."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

import checking
from harness import Harness

ABSENT = 69
FOLDER = Path(__file__).resolve().parent / "checks"


def main() -> int:
    program, *wanted = sys.argv[1:]
    names = sorted(file.stem for file in FOLDER.glob("*.py"))
    if unknown := set(wanted) - set(names):
        print(f"tests/clients: no such checks: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    begin = time.monotonic()
    with Harness(Path(program)) as harness:
        for name in wanted or names:
            importlib.import_module(f"checks.{name}")
            print(f"\n{name}", flush=True)
            checking.run_all(f"checks.{name}", harness)
    passed, failed = len(checking.passed), len(checking.failed)
    for sentence in checking.failed:
        print(f"FAILED  {sentence}")
    for sentence in checking.absent:
        print(f"ABSENT  {sentence}")
    print(f"\n{passed} passed, {failed} failed, {len(checking.absent)} absent")
    print(f"{time.monotonic() - begin:.0f} s")
    if checking.absent and not failed:
        return ABSENT
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
