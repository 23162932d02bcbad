"""The cases: their budgets and requests, and what is spent in them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import partial
from typing import Awaitable, Callable

from client import Ask, send
from model import INPUT, Model, input_tokens, start_model
from process import MeasurementError
from product import KEY, Product
from stage import Stage

# Sends a request; see `send`.
Call = Callable[[], Awaitable[bool]]

# The tokens of the requests of LiteLLM's issue 18730.
REPORTED = (58, 80, 175, 175, 175)

STREAMS = 200
STREAM_BOUND, STREAM_TOKENS = 200, (100, 199)

# An honest client: the bound of its requests is ten times the mean of the tokens that they use.
MEAN = 100
HONEST_TOKENS = (MEAN // 2, MEAN * 3 // 2)

# Prompts in a script of which each character has three bytes.
PROMPTS, LETTERS, PROMPT_BOUND = 20, "\uA66E" * 500, 50

# How long all requests of a case may take until each of them was rejected, or has reached the upstream.
DECIDED_SECONDS = 60.0


@dataclass(frozen=True)
class Case:
    """Requests that spend a budget. `together`: all are in flight at once. Otherwise a client sends one after the other, until
    one is rejected."""

    name: str
    budget: int
    asks: list[Ask]
    together: bool


@dataclass(frozen=True)
class Spent:
    """The tokens that the upstream sent, and the requests that it received."""

    tokens: int
    admitted: int
    budget: int

    @property
    def over(self) -> int:
        return max(0, self.tokens - self.budget)


@dataclass
class Result:
    """What a product has spent, by the names of cases, and the reasons why cases were not measured."""

    product: Product
    spent: dict[str, Spent] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def cases() -> list[Case]:
    """Returns the cases. Their tokens are the same in each run."""
    chance = random.Random(1)
    streams = [Ask(chance.randint(*STREAM_TOKENS), STREAM_BOUND, is_stream=True) for _ in range(STREAMS)]
    honest = [Ask(chance.randint(*HONEST_TOKENS), 10 * MEAN) for _ in range(200)]
    return [
        Case("reported", 100, [Ask(tokens - INPUT) for tokens in REPORTED], together=True),
        Case("streams", 10_000, streams, together=True),
        Case("prompts", 10_000, [Ask(PROMPT_BOUND, PROMPT_BOUND, text=LETTERS)] * PROMPTS, together=True),
        Case("honest", 10_000, honest, together=False),
    ]


CASES = cases()


async def measure(stage: Stage, product: Product, case: Case) -> Spent:
    """Starts a product, and sends the requests to its instances in turns."""
    assert product.start
    async with start_model(is_open=not case.together) as model:
        # The instances check the upstream while they start, so the loop of the model must run.
        ports = await asyncio.to_thread(product.start, stage, model.port, case.budget)
        key = KEY.format(budget=case.budget)
        calls = [partial(send, ports[number % len(ports)], key, ask) for number, ask in enumerate(case.asks)]
        if case.together:
            await send_together(model, calls)
        else:
            await send_in_sequence(calls)
        return Spent(model.sent, model.begun, case.budget)


async def send_together(model: Model, calls: list[Call]) -> None:
    """Opens the gate of the model when all requests have been decided."""
    tasks = [asyncio.ensure_future(call()) for call in calls]
    end = asyncio.get_running_loop().time() + DECIDED_SECONDS
    while model.begun + sum(task.done() for task in tasks) < len(tasks):
        if asyncio.get_running_loop().time() > end:
            raise MeasurementError(f"not all requests were decided within {DECIDED_SECONDS:.0f} s")
        await asyncio.sleep(0.01)
    model.gate.set()
    await asyncio.gather(*tasks)


async def send_in_sequence(calls: list[Call]) -> None:
    for call in calls:
        if not await call():
            return
    raise MeasurementError("no request was rejected")


def simulate(product: Product, case: Case) -> Spent:
    """Applies the law of a product to the same requests."""
    assert product.simulate
    law, tokens, admitted, open_requests = product.simulate(case.budget), 0, 0, []
    for ask in case.asks:
        reserved = law.admit()
        if reserved is None:
            if case.together:
                continue
            break
        used = input_tokens(ask.prompt) + min(ask.tokens, ask.bound or ask.tokens)
        tokens, admitted = tokens + used, admitted + 1
        if case.together:
            open_requests.append((reserved, used))
        else:
            law.settle(reserved, used)
    for reserved, used in open_requests:
        law.settle(reserved, used)
    return Spent(tokens, admitted, case.budget)
