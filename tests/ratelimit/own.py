"""Runs the tests of envoyproxy/ratelimit against Tidegate, and lists each case: the same, or different on purpose."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import expected
import source
from source import Source

# Packages with their own tests, which run unchanged, and the translated cases of the others.
PACKAGES = ("./test/config", "./test/service", "./test/tidegate")
TRANSLATED = {"TestLimiter": "limiter", "TestIntegration": "integration", "TestService": "service"}
TOTAL_TIMEOUT = 240


@dataclass
class Case:
    """A case: a test function of a folder of test/. `found` are the fixed words of its differences, with details."""

    has_run: bool = False
    has_failed: bool = False
    found: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    same: int = 0
    output: str = ""


Cases = dict[str, Case]


def run(tree: Source, tidegate: Path, *only: str) -> tuple[Cases, str]:
    """Runs the tests, or `only` some. Returns the cases and the output."""
    with tempfile.TemporaryDirectory(prefix="tidegate-ratelimit-") as folder:
        record = Path(folder) / "record"
        record.touch()
        env = {**os.environ, "TIDEGATE": str(tidegate), "TIDEGATE_RECORD": str(record), "TIDEGATE_FOLDER": folder}
        command = ["go", "test", "-json", "-vet=off", "-count=1", "-timeout", f"{TOTAL_TIMEOUT}s"]
        lines = output_of([*command, *(only or PACKAGES)], tree.folder, env)
        cases = cases_of(tree)
        events = [json.loads(line) for line in lines if line.startswith("{")]
        for event in events:
            add_result(cases, event)
        for line in record.read_text().splitlines():
            test, word, details = line.split("\t")
            case = cases.setdefault(test, Case())
            if word == "same":
                case.same += 1
            else:
                case.found[word].append(details)
    build = [event.get("Output", "") for event in events if event.get("Action") == "build-output"]
    others = [line for line in lines if not line.startswith("{")]
    return cases, "".join(build) + "\n".join(others)


def measure(tree: Source, tidegate: Path) -> list[str]:
    """Runs the outage and the attacks, and prints their figures. Returns the faults."""
    cases, output = run(tree, tidegate, "./test/tidegate", "-run", "^(TestOutage|TestHostile)$")
    done = {name: case for name, case in cases.items() if case.has_run}
    print(output, *(case.output for case in done.values()))
    return [f"{name}: it fails" for name, case in done.items() if case.has_failed] or ([] if done else ["nothing has run"])


def output_of(command: list[str], folder: Path, env: dict[str, str]) -> list[str]:
    """Runs Go, and ends the processes that the tests have started."""
    process = subprocess.Popen(
        command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        return process.communicate(timeout=TOTAL_TIMEOUT + 60)[0].splitlines()
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def cases_of(tree: Source) -> Cases:
    """Returns all cases that the result must have."""
    names = {
        "config": tree.functions("test/config/*_test.go"),
        "service": tree.functions("test/service/*_test.go"),
        "limiter": tree.functions("test/limiter/*_test.go"),
        "integration": tree.functions("test/integration/*_test.go"),
    }
    return {f"{folder}/{name}": Case() for folder, tests in names.items() for name in tests}


def add_result(cases: Cases, event: dict[str, str]) -> None:
    """Reads an event of `go test -json`."""
    if event.get("Action") not in ("output", "pass", "fail") or "Test" not in event:
        return
    package = event["Package"].rpartition("/")[2]
    test, _, rest = event["Test"].partition("/")
    if package == "tidegate":
        if not rest and test in TRANSLATED:
            return  # each of its cases has its own result
        name = f"{TRANSLATED[test]}/{rest}" if test in TRANSLATED else f"tidegate/{test}"
    else:
        name = f"{package}/{test}"  # the test fails if a part of it fails
    case = cases.setdefault(name, Case())
    case.output += event.get("Output", "")
    if event["Action"] != "output":
        case.has_run = True
        case.has_failed |= event["Action"] == "fail"


def report(cases: Cases, tree: Source) -> list[str]:
    """Prints each case. Returns the faults."""
    faults: list[str] = []
    used: set[tuple[str, str]] = set()
    for name, case in sorted(cases.items()):
        reasons = {word: expected.reason(name, word) for word in case.found}
        not_run = expected.reason(name, expected.NOT_RUN)
        used.update((name, word) for word in [*case.found, *([expected.NOT_RUN] if not_run else [])])
        if unlisted := [word for word, reason in reasons.items() if reason is None]:
            details = "; ".join(f"{word}: {case.found[word][0][:600]}" for word in unlisted)
            faults.append(f"{name}: a difference that is not listed: {details}")
            print(f"  FAILED     {name}")
        elif reasons:
            print(f"  different  {name}: {'; '.join(f'{word}: {reason}' for word, reason in reasons.items())}")
        elif not_run and (not case.has_run or not case.same):
            print(f"  not run    {name}: {not_run}")
        elif not case.has_run or case.has_failed:
            faults.append(f"{name}: {'it fails' if case.has_failed else 'it has not run'}")
            print(f"  FAILED     {name}\n{case.output}")
        elif name.partition("/")[0] in ("config", "service") and not case.same and not is_translated(name, cases):
            faults.append(f"{name}: it asks Tidegate nothing, and is not listed")
            print(f"  FAILED     {name}")
        else:
            print(f"  same       {name}" + (f" ({case.same} comparisons)" if case.same else ""))
            if name.startswith("tidegate/"):
                print(case.output)
    faults += expected.faults(used)
    if tree.is_compared_commit:
        faults += [f"{name} {word}: listed, but not found" for name, word in expected.unused(used, is_script=False)]
    return faults


def is_translated(name: str, cases: Cases) -> bool:
    """Returns whether go/service_test.go has the case of test/service, too."""
    return name in expected.TRANSLATED and cases[name].has_run
