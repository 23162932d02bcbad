"""Tidegate, with `token_bucket` in Redis."""

from __future__ import annotations

from pathlib import Path

from process import Command, free_port
from product import HERE, Fleet, Limit, Product
from redis import start_redis
from sentinel import MASTER, kill, start_sentinel
from stage import Stage


def start(stage: Stage, limit: Limit, instances: int) -> Fleet:
    redis = start_redis(stage)
    # Redis may exceed the default timeout of 50 ms on a busy machine, which is not part of these measurements.
    store = f'{{ url: "redis://127.0.0.1:{redis.port}", timeout: 1s }}'
    return Fleet([start_one(stage, limit, store) for _ in range(instances)])


def start_with_sentinel(stage: Stage, limit: Limit, instances: int) -> Fleet:
    port, primary = start_sentinel(stage)
    store = f'{{ sentinel: {{ urls: ["redis://127.0.0.1:{port}"], master: {MASTER} }} }}'
    return Fleet([start_one(stage, limit, store) for _ in range(instances)], lambda: kill(primary))


def start_one(stage: Stage, limit: Limit, store: str) -> int:
    port = free_port()
    template: str | Path = HERE / "config" / "tidegate.yaml"
    config = stage.config(str(template), PORT=port, STORE=store, RATE=limit.rate, INTERVAL=f"{limit.seconds}s")
    command: Command = [stage.tools.tidegate, "run", "-c", config, "--workers", "1"]
    stage.start("tidegate", command, port)
    return port


PRODUCTS = [
    Product(
        name="Tidegate",
        how="measured",
        law="`token_bucket`: a permit becomes available again one interval after it was granted. All instances decide in one "
        "script in Redis. In an outage each instance enforces its share (`on_store_failure: local`, the default), so the second in "
        "which an outage begins can have permits of Redis and of the shares.",
        start=start,
        fail=start_with_sentinel,
        needs=("redis-server",),
        has_store=True,
        header="retry-after",
        ours=True,
    )
]
