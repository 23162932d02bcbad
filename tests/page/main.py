"""Runs the checks of the dashboard; see `run`."""

from __future__ import annotations

import sys
import time
import traceback
from pathlib import Path

import checks
from scene import Scene


def main() -> int:
    program, *wanted = sys.argv[1:]
    failed = []
    begin = time.monotonic()
    with Scene(Path(program)) as scene:
        for sentence, check in checks.checks:
            if wanted and check.__name__ not in wanted:
                continue
            start = time.monotonic()
            try:
                check(scene)
            except Exception as error:
                failed.append(sentence)
                print(f"  FAILED  {sentence}")
                line = next(frame.lineno for frame in traceback.extract_tb(error.__traceback__) if "checks" in frame.filename)
                print(f"          checks.py:{line}: {error}", flush=True)
            else:
                print(f"  ok      {sentence} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"\n{len(failed)} failed, {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
