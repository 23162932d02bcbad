"""The rows of TLS: all gateways with the same certificate, version and cipher."""

from __future__ import annotations

from dataclasses import replace

from contestant import Contestant
from gateways import envoy, haproxy, nginx, tidegate
from h2load import Http2
from row import AtMost, Row
from rows import ENVOY, HAPROXY, NGINX, TIDEGATE

OURS = Contestant("tidegate", TIDEGATE, "tidegate_tls.yaml", tidegate("tidegate_tls.yaml"), tls=True)
OF_NGINX = Contestant("nginx", NGINX, "nginx_tls.conf", nginx("nginx_tls.conf"), tls=True)
OF_HAPROXY = Contestant("haproxy", HAPROXY, "haproxy_tls.cfg", haproxy("haproxy_tls.cfg"), tls=True)
OF_ENVOY = Contestant("Envoy", ENVOY, "envoy_tls.yaml", envoy("envoy_tls.yaml"), tls=True)

TLS = Row(
    name="tls",
    title="Forwarding what comes over TLS",
    about="As forwarding without limits, but clients keep connections of TLS 1.3. All gateways show the same certificate "
    "and agree upon TLS_AES_128_GCM_SHA256, which is looked at before; they ask the upstream in clear.",
    contestants=[OURS, OF_NGINX, OF_HAPROXY, OF_ENVOY],
    goals=[AtMost("tidegate", "nginx", 1.05), AtMost("tidegate", "Envoy", 0.50)],
)

HANDSHAKES = Row(
    name="handshakes",
    title="Full handshakes of TLS",
    about="Four clients (`openssl s_time -new`) connect, do a handshake of TLS 1.3 and leave, one after the other: "
    "nothing is resumed, X25519, and a certificate of ECDSA with P-256.",
    contestants=[replace(one, greeted=True) for one in (OURS, OF_NGINX, OF_HAPROXY, OF_ENVOY)],
    goals=[AtMost("tidegate", "nginx", 1.00, each="handshake")],
    each="handshake",
)

STREAMS = Http2(connections=16, streams=16, scheme="https")

HTTP2 = Row(
    name="h2",
    title="HTTP/2 over TLS",
    about="h2load asks on 16 connections of TLS with 16 streams each, all else as over TLS. The upstream is asked in "
    "HTTP/1.1.",
    contestants=[replace(one, http2=STREAMS) for one in (OURS, OF_HAPROXY, OF_NGINX, OF_ENVOY)],
    goals=[AtMost("tidegate", "haproxy", 1.10), AtMost("tidegate", "Envoy", 0.60)],
)

ROWS = [TLS, HANDSHAKES, HTTP2]
