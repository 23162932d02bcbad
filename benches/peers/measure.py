"""Loads the contestants of a row in turns: A B C, A B C, and so on, so that none has the quiet moments alone."""

from __future__ import annotations

from contestant import Contestant, Running
from load import load
from process import Failed
from row import Measured, Progress, Result, Row
from stage import Stage


def measure(stage: Stage, row: Row, rounds: int, seconds: float, say: Progress) -> Measured:
    """Starts the contestants of a row, warms them up, and loads each in each round."""
    results = {contestant.name: Result(contestant.name, contestant.config) for contestant in row.contestants}
    before = list(stage.processes)
    try:
        field = start(stage, row.contestants, results)
        for number in range(rounds + 1):
            for contestant, running in field:
                one_slice(stage, contestant, running, results[contestant.name], 1.0 if number == 0 else seconds)
                say(f"{row.name}: {contestant.name}, round {number} of {rounds}")
            for result in results.values():
                result.slices = result.slices if number else []  # the first was to warm up
    finally:
        stage.stop([process for process in stage.processes if process not in before])
    return Measured(row, list(results.values()))


def start(
    stage: Stage, contestants: list[Contestant], results: dict[str, Result]
) -> list[tuple[Contestant, Running]]:
    """Those who could be started and answer as they should; of the others the reason is noted."""
    field = []
    for contestant in contestants:
        result = results[contestant.name]
        result.failure = contestant.missing(stage)
        if result.failure:
            continue
        try:
            running = contestant.start(stage)
            contestant.check(running)
            field.append((contestant, running))
        except Failed as failure:
            result.failure = str(failure)
    return field


def one_slice(stage: Stage, contestant: Contestant, running: Running, result: Result, seconds: float) -> None:
    """One who has failed is loaded no more, and what was measured of it until then does not count."""
    if result.failure:
        return
    try:
        one = load(stage.tools, running.port, seconds, running.processes, contestant.status, contestant.clients)
        result.slices.append(one)
    except Failed as failure:
        result.failure, result.slices = str(failure), []
