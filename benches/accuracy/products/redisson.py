"""Redisson's RRateLimiter: its script, which nginx runs with Lua. Java is not part of it."""

from __future__ import annotations

from gateways import REDISSON
from process import free_port
from product import Fleet, Limit, Product, WaitErrors
from redis import Redis, start_redis
from stage import Stage

KEYS = ["overall", "{overall}:value", "{overall}:value:a", "{overall}:permits", "{overall}:permits:a"]


def start(stage: Stage, limit: Limit, instances: int) -> Fleet:
    redis = start_limiter(stage, limit)
    ports = [free_port() for _ in range(instances)]
    for port in ports:
        config = stage.config("nginx_redis.conf", PORT=port, REDIS=redis.port, SCRIPT=REDISSON)
        stage.start("nginx", stage.nginx(config), port)
    return Fleet(ports)


def start_limiter(stage: Stage, limit: Limit) -> Redis:
    redis = start_redis(stage)
    redis.run("hset", "overall", "rate", str(limit.rate), "interval", str(limit.seconds * 1_000), "type", "0")
    return redis


def wait(stage: Stage) -> WaitErrors:
    """Calls the script with the times of its ARGV, without waiting for them."""
    redis = start_limiter(stage, Limit(seconds=60))
    calls = iter(range(1_000_000))

    def take(now: int) -> str:
        return redis.run("eval", REDISSON.read_text(), "5", *KEYS, "1", str(now), f"{next(calls):016d}").strip()

    for now in (1_000_000, 1_005_000):
        for _ in range(50):
            take(now)
    announced = [(now, int(take(now))) for now in range(1_010_000, 1_011_000, 100)]
    granted_at = next(now for now in range(1_059_990, 1_061_000) if not take(now))
    return [(milliseconds - (granted_at - now)) / 1_000 for now, milliseconds in announced]


PRODUCTS = [
    Product(
        name="Redisson",
        how="measured: the script of RRateLimiter, in nginx with Lua",
        law="A log of permits in Redis, as `token_bucket`, with the clocks of the clients: here all clients have the same clock. The "
        "wait is exact for one permit, and too short for several, since only the oldest one counts. Without Redis, calls fail.",
        start=start,
        needs=("nginx", "libnginx-mod-http-lua", "redis-server"),
        wait=wait,
    )
]
