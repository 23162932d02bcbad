"""Registers and runs checks. A check is a function and a sentence; it fails if the function raises."""

from __future__ import annotations

import json
import signal
import subprocess
import time
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterator

if TYPE_CHECKING:
    from harness import Harness

# The timeouts of a check and of a program that it runs, in seconds.
CHECK_TIMEOUT = 30
PROGRAM_TIMEOUT = 20

Check = Callable[["Harness"], None]
checks: list[tuple[str, str, Check, int]] = []
passed: list[str] = []
failed: list[str] = []
absent: list[str] = []


class Failed(Exception):
    """A failed expectation."""


class Absent(Exception):
    """A program that a check needs is missing, so the check cannot run."""


class CheckTimeout(BaseException):
    """A check takes too long. Not an `Exception`, so that clients that catch all exceptions do not catch it."""


def check(sentence: str, timeout: int = CHECK_TIMEOUT) -> Callable[[Check], Check]:
    """Registers a check."""

    def register(function: Check) -> Check:
        checks.append((function.__module__, sentence, function, timeout))
        return function

    return register


def run_all(module: str, harness: Harness) -> None:
    """Runs the checks of a module, each with its timeout."""
    for _, sentence, function, timeout in [known for known in checks if known[0] == module]:
        report(sentence, lambda function=function: function(harness), timeout)


def report(sentence: str, function: Callable[[], None], timeout: int = CHECK_TIMEOUT) -> None:
    """Runs a check and prints its result."""
    begin = time.monotonic()
    try:
        with within(timeout):
            function()
    except Absent as error:
        absent.append(sentence)
        print(f"  ABSENT  {sentence}: {error}", flush=True)
    except (Exception, CheckTimeout) as error:
        failed.append(sentence)
        print(f"  FAILED  {sentence}")
        result = str(error) if isinstance(error, Failed) else f"{where(error)}: {error!r}"
        print("          " + result.strip().replace("\n", "\n          "), flush=True)
    else:
        passed.append(sentence)
        took = time.monotonic() - begin
        print(f"  ok      {sentence}" + (f" ({took:.1f} s)" if took > 1 else ""), flush=True)


def where(error: BaseException) -> str:
    """Returns the line of a check at which an error occurred."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/checks/" in frame.filename]
    return f"checks/{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "not in a check"


@contextmanager
def within(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise CheckTimeout(f"not finished after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise Failed(f"{what}: {found!r:.500}, not {wanted!r:.500}")


def output(*command: object, stdin: bytes = b"", codes: tuple[int, ...] = (0,)) -> str:
    """Runs a program. Returns its output and errors. Fails if the exit code is not one of `codes`."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PROGRAM_TIMEOUT, check=False
    )
    text = done.stdout.decode(errors="replace")
    if done.returncode not in codes:
        raise Failed(f"{' '.join(words)}: exit code {done.returncode}: {text[-1000:]}")
    return text


def run_script(harness: Harness, script: str, *arguments: object) -> None:
    """Runs a Node.js script that prints a line of JSON for each of its checks: `{"sentence": ..., "error": ...}`."""
    result = output("node", harness.folder / script, *arguments, codes=(0, 1))
    for line in result.splitlines():
        if not line.startswith("{"):
            raise Failed(result[-1000:])
        result = json.loads(line)

        def outcome(error: str | None = result.get("error")) -> None:
            if error:
                raise Failed(error)

        report(result["sentence"], outcome)
