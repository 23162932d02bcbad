"""Loads the contestants of a row in turns: A B C, C B A, and so on, so that none has the quiet moments alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from contestant import Contestant, Running
from load import load
from process import Failed
from row import Result, Results, Row
from section import Section
from stage import Stage

WARM_UP_SECONDS = 1.0


@dataclass(frozen=True)
class Rounds:
    """How many for all contestants, and how many more at most for those of whom they do not tell enough."""

    of_all: int
    of_unclear: int


def measure(stage: Stage, row: Row, rounds: Rounds, seconds: float, say: Callable[[str], None]) -> Section:
    """Starts the contestants of a row, warms them up, and loads each in each round; then some of them in more rounds, until it
    is clear who meets the goals."""
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
    """Those who could be started and answer as they should; of the others the reason is noted."""
    field = []
    for result in results.values():
        contestant = result.contestant
        try:
            if reason := contestant.missing(stage):
                raise Failed(reason)
            running = contestant.start(stage)
            contestant.check(stage, running)
            field.append((contestant, running))
        except Failed as failure:
            result.failure = str(failure)
    return field


def one_slice(stage: Stage, contestant: Contestant, running: Running, results: Results, seconds: float) -> None:
    """Who has failed is loaded no more."""
    result = results[contestant.name]
    if result.failure:
        return
    try:
        result.slices.append(load(stage.tools, contestant, running, seconds))
    except Failed as failure:
        result.failure = str(failure)
