"""The rows with larger bodies, with a new connection for each request, and with many routes."""

from __future__ import annotations

from dataclasses import replace

from contestant import KIB, MIB, Contestant, LargeBody
from gateways import haproxy, nginx, tidegate
from row import AtMost, Row
from rows import HAPROXY, NGINX, TIDEGATE
from stage import Stage
from tls_rows import HAPROXY_TLS, TIDEGATE_TLS

SIZES = {"10 KiB": 10 * KIB, "100 KiB": 100 * KIB, "1 MiB": MIB, "10 MiB": 10 * MIB}

# The sizes with a goal: there, moving the bytes costs more than all else.
LONG = ("1 MiB", "10 MiB")

PLAIN = Contestant("tidegate", TIDEGATE, "tidegate.yaml", tidegate("tidegate.yaml"))
SPLICING = Contestant("haproxy", HAPROXY, "haproxy_splice.cfg", haproxy("haproxy_splice.cfg"))
SPLICES = " haproxy has `option splice-request` and `option splice-response`."
OVER_TLS = (TIDEGATE_TLS, HAPROXY_TLS)
PLAINTEXT = (PLAIN, SPLICING)


def upstream_with_files(stage: Stage) -> int:
    """Adds the files of the responses to the common upstream."""
    for size in SIZES.values():
        (stage.folder / "bodies" / str(size)).write_bytes(bytes(size))
    return stage.upstream


def large(one: Contestant, size: str, is_upload: bool) -> Contestant:
    return replace(one, name=f"{one.name}, {size}", large=LargeBody(SIZES[size], is_upload))


def body_row(name: str, contestants: tuple[Contestant, Contestant], is_upload: bool) -> Row:
    is_tls = contestants == OVER_TLS
    what = "Requests" if is_upload else "Responses"
    return Row(
        name=name,
        title=f"{what} with larger bodies{' over TLS' if is_tls else ''}",
        about=f"{what} with bodies of 10 KiB to 10 MiB of known length, on 64 connections; 1 MiB on 16 and 10 MiB on 4. "
        f"The upstream is plaintext.{'' if is_tls else SPLICES}",
        contestants=[large(one, size, is_upload) for size in SIZES for one in contestants],
        goals=[AtMost(f"tidegate, {size}", f"haproxy, {size}", 1.00, each="MiB") for size in LONG],
        upstream=upstream_with_files,
        each="MiB",
    )


NEW_CONNECTIONS = Row(
    name="connections",
    title="A new connection for each request",
    about="As in the first row, but every request has `Connection: close`. The upstream connections stay open.",
    contestants=[
        replace(PLAIN, new_connections=True),
        Contestant("nginx", NGINX, "nginx.conf", nginx("nginx.conf"), new_connections=True),
        Contestant("haproxy", HAPROXY, "haproxy.cfg", haproxy("haproxy.cfg"), new_connections=True),
    ],
    goals=[AtMost("tidegate", "haproxy", 1.10)],
)

MANY = "\n".join(
    f"  - {{ name: r{number}, match: {{ path: /r{number}/** }}, upstream: api }}" for number in range(5_000)
)

ROUTES = Row(
    name="routes",
    title="5,000 routes",
    about="As in the first row, with 5,000 further routes that match other paths.",
    contestants=[
        Contestant(
            "tidegate, 5,000 routes",
            TIDEGATE,
            "tidegate_routes.yaml",
            tidegate("tidegate_routes.yaml", ROUTES=MANY),
        ),
        replace(PLAIN, name="tidegate, one route"),
    ],
    goals=[AtMost("tidegate, 5,000 routes", "tidegate, one route", 1.10)],
)

ROWS = [
    body_row("responses", PLAINTEXT, is_upload=False),
    body_row("uploads", PLAINTEXT, is_upload=True),
    body_row("responses_tls", OVER_TLS, is_upload=False),
    body_row("uploads_tls", OVER_TLS, is_upload=True),
    NEW_CONNECTIONS,
    ROUTES,
]
