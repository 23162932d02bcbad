"""Tidegate, with `permits: { usage: openai }` in Redis."""

from __future__ import annotations

from process import Command, free_port
from product import HERE, Product
from redis import start_redis
from stage import Stage

INSTANCES = 2

# The bound of the output that the gateway writes into requests that have none.
RESERVE = 10


def start(stage: Stage, upstream: int, budget: int) -> list[int]:
    redis = start_redis(stage)
    return [start_one(stage, upstream, budget, redis.port) for _ in range(INSTANCES)]


def start_one(stage: Stage, upstream: int, budget: int, redis: int) -> int:
    port = free_port()
    values = {"PORT": port, "REDIS": redis, "BUDGET": budget, "RESERVE": RESERVE}
    config = stage.config(str(HERE / "config" / "tidegate.yaml"), UPSTREAM=upstream, **values)
    command: Command = [stage.tools.tidegate, "run", "-c", config, "--workers", "1"]
    stage.start("tidegate", command, port)
    return port


PRODUCTS = [
    Product(
        name="Tidegate",
        how=f"measured: {INSTANCES} instances on one Redis",
        law="`permits: { usage: openai }`: a request reserves the most that it can cost, and its usage is charged at the end of the "
        f"response. Requests without a bound of the output get `reserve: {{ output: {RESERVE} }}`.",
        start=start,
        ours=True,
    )
]
