"""The rows with TLS: all gateways use the same certificate, version and cipher."""

from __future__ import annotations

from dataclasses import replace

from contestant import Contestant
from gateways import envoy, haproxy, nginx, tidegate
from h2load import Http2
from row import AtMost, Row
from rows import ENVOY, HAPROXY, NGINX, TIDEGATE

TIDEGATE_TLS = Contestant("tidegate", TIDEGATE, "tidegate_tls.yaml", tidegate("tidegate_tls.yaml"), tls=True)
NGINX_TLS = Contestant("nginx", NGINX, "nginx_tls.conf", nginx("nginx_tls.conf"), tls=True)
HAPROXY_TLS = Contestant("haproxy", HAPROXY, "haproxy_tls.cfg", haproxy("haproxy_tls.cfg"), tls=True)
ENVOY_TLS = Contestant("Envoy", ENVOY, "envoy_tls.yaml", envoy("envoy_tls.yaml"), tls=True)

TLS = Row(
    name="tls",
    title="Forwarding requests over TLS",
    about="As in the first row, but over TLS 1.3 connections that stay open. All gateways present the same certificate and "
    "select TLS_AES_128_GCM_SHA256, which is checked first. The upstream is plaintext.",
    contestants=[TIDEGATE_TLS, NGINX_TLS, HAPROXY_TLS, ENVOY_TLS],
    goals=[AtMost("tidegate", "nginx", 1.05), AtMost("tidegate", "Envoy", 0.50)],
)

HANDSHAKES = Row(
    name="handshakes",
    title="Full TLS handshakes",
    about="Four clients (`openssl s_time -new`) repeatedly connect, do a TLS 1.3 handshake and disconnect. No session is "
    "resumed. Key exchange: X25519; certificate: ECDSA with P-256.",
    contestants=[replace(one, handshakes_only=True) for one in (TIDEGATE_TLS, NGINX_TLS, HAPROXY_TLS, ENVOY_TLS)],
    goals=[AtMost("tidegate", "nginx", 1.00, each="handshake")],
    each="handshake",
)

STREAMS = Http2(connections=16, streams=16, scheme="https")

HTTP2 = Row(
    name="h2",
    title="HTTP/2 over TLS",
    about="h2load sends requests on 16 TLS connections with 16 streams each; otherwise as for forwarding over TLS. "
    "The upstream connection is HTTP/1.1.",
    contestants=[replace(one, http2=STREAMS) for one in (TIDEGATE_TLS, HAPROXY_TLS, NGINX_TLS, ENVOY_TLS)],
    goals=[AtMost("tidegate", "haproxy", 1.10), AtMost("tidegate", "Envoy", 0.60)],
)

ROWS = [TLS, HANDSHAKES, HTTP2]
