"""Loads the contestants of a row in turns (A B C, C B A, and so on), so that changes of the machine's speed affect
all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from contestant import Contestant, Running
from load import load
from process import MeasurementError
from row import Result, Results, Row
from section import Section
from stage import Stage

WARM_UP_SECONDS = 1.0


@dataclass(frozen=True)
class Rounds:
    """The number of rounds for all contestants, and the maximum of further rounds for contestants without a clear
    result."""

    of_all: int
    of_unclear: int


def measure(stage: Stage, row: Row, rounds: Rounds, seconds: float, say: Callable[[str], None]) -> Section:
    """Starts the contestants of a row, warms them up, and loads each of them in each round. Adds rounds for some
    contestants until there is a clear verdict on the goals."""
    results = {contestant.name: Result(contestant) for contestant in row.contestants}
    with stage.scene(), stage.upstream_at(row.upstream(stage) if row.upstream else stage.upstream):
        field = start(stage, results)
        for contestant, running in field:
            one_slice(stage, contestant, running, results, WARM_UP_SECONDS)
        for result in results.values():
            result.slices.clear()
        for number in range(rounds.of_all + rounds.of_unclear):
            loaded = set(results) if number < rounds.of_all else row.unclear(results)
            for contestant, running in field if number % 2 == 0 else reversed(field):
                if contestant.name in loaded:
                    say(f"{row.name}, round {number + 1}: {contestant.name}")
                    one_slice(stage, contestant, running, results, seconds)
    return row.section(results)


def start(stage: Stage, results: Results) -> list[tuple[Contestant, Running]]:
    """Starts the contestants. Returns those that respond as expected, and records the failures of the others."""
    field = []
    for result in results.values():
        contestant = result.contestant
        try:
            if reason := contestant.missing(stage):
                raise MeasurementError(reason)
            running = contestant.start(stage)
            contestant.check(stage, running)
            field.append((contestant, running))
        except MeasurementError as failure:
            result.failure = str(failure)
    return field


def one_slice(stage: Stage, contestant: Contestant, running: Running, results: Results, seconds: float) -> None:
    """Loads a contestant for one slice, unless it has failed before."""
    result = results[contestant.name]
    if result.failure:
        return
    try:
        result.slices.append(load(stage.tools, contestant, running, seconds))
    except MeasurementError as failure:
        result.failure = str(failure)
