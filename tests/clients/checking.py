"""What a check is: a function with a sentence that holds if the function returns."""

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
    from stage import Stage

# How long one check may take, and a program that it runs.
LONGEST = 30
PROGRAM_LONGEST = 20

Check = Callable[["Stage"], None]
checks: list[tuple[str, str, Check, int]] = []
passed: list[str] = []
failed: list[str] = []


class Failed(Exception):
    """What was to hold does not."""


class Hangs(BaseException):
    """A check takes too long. Clients that catch every exception do not catch this."""


def check(sentence: str, longest: int = LONGEST) -> Callable[[Check], Check]:
    """Registers a check."""

    def register(function: Check) -> Check:
        checks.append((function.__module__, sentence, function, longest))
        return function

    return register


def run_all(module: str, stage: Stage) -> None:
    """Runs the checks of a module, each within its time."""
    for _, sentence, function, longest in [known for known in checks if known[0] == module]:
        report(sentence, lambda function=function: function(stage), longest)


def report(sentence: str, function: Callable[[], None], longest: int = LONGEST) -> None:
    """Runs it, and tells what became of it."""
    begin = time.monotonic()
    try:
        with within(longest):
            function()
    except (Exception, Hangs) as error:
        failed.append(sentence)
        print(f"  FAILED  {sentence}")
        told = str(error) if isinstance(error, Failed) else f"{where(error)}: {error!r}"
        print("          " + told.strip().replace("\n", "\n          "), flush=True)
    else:
        passed.append(sentence)
        took = time.monotonic() - begin
        print(f"  ok      {sentence}" + (f" ({took:.1f} s)" if took > 1 else ""), flush=True)


def where(error: BaseException) -> str:
    """The line of a check from which an error came."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/checks/" in frame.filename]
    return f"checks/{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "not in a check"


@contextmanager
def within(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise Hangs(f"not done after {seconds} s")

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
    """What a program writes to both of its outputs; it must end with one of these codes."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PROGRAM_LONGEST, check=False
    )
    text = done.stdout.decode(errors="replace")
    if done.returncode not in codes:
        raise Failed(f"{' '.join(words)}: ended with {done.returncode}: {text[-1000:]}")
    return text


def run_script(stage: Stage, script: str, *arguments: object) -> None:
    """Runs a script of node that prints a line of JSON for each of its checks: `{"sentence": ..., "error": ...}`."""
    told = output("node", stage.folder / script, *arguments, codes=(0, 1))
    for line in told.splitlines():
        if not line.startswith("{"):
            raise Failed(told[-1000:])
        result = json.loads(line)

        def outcome(error: str | None = result.get("error")) -> None:
            if error:
                raise Failed(error)

        report(result["sentence"], outcome)
