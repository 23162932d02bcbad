"""Configurations of nginx, each with its conversion: both gateways decide alike."""

from __future__ import annotations

import queue
import threading

from checking import expect
from pairs import GRANTED, pair
from setup import Setup
from traffic import Burst, ask, at_once, statuses

REJECTED = [429]
TIMEOUT = 20


def configuration(http: str, server: str) -> str:
    """Returns a configuration with these directives, and a server that forwards all other requests."""
    return f"""events {{}}
http {{
  limit_req_status 429;
  limit_conn_status 429;
  {http}
  server {{
    listen 127.0.0.1:8080;
    server_name api.example.com;
    location / {{ proxy_pass http://127.0.0.1:9000; }}
    {server}
  }}
}}
"""


def limited(zone: str, limit: str) -> str:
    return configuration(zone, f"location /api/ {{ {limit} proxy_pass http://127.0.0.1:9000; }}")


@pair("nginx: `delay` admits a part of a burst at once, and delays the rest", "nginx")
def delay(setup: Setup) -> None:
    zone = "limit_req_zone $binary_remote_addr zone=one:1m rate=1r/s;"
    for name, port in zip(("nginx", "Tidegate"), setup.converted(limited(zone, "limit_req zone=one burst=6 delay=2;"))):
        found = sorted((response.status, round(response.seconds)) for response in at_once(port, "/api/", 9))
        delayed = [(200, seconds) for seconds in (0, 0, 0, 1, 2, 3, 4)]
        expect(f"statuses and seconds of {name}", found, [*delayed, (429, 0), (429, 0)])


@pair("nginx: a rate of `7r/m` is rounded to thousandths per second", "nginx")
def fraction(setup: Setup) -> None:
    zone = "limit_req_zone $binary_remote_addr zone=one:1m rate=7r/m;"
    ports = setup.converted(limited(zone, "limit_req zone=one burst=2 nodelay;"))
    # A request returns after 8.6 s.
    found = statuses(ports, "/api/", Burst(0, 5), Burst(7.5, 1), Burst(9.5, 2))
    wanted = [GRANTED * 3 + REJECTED * 2, REJECTED, GRANTED + REJECTED]
    expect("statuses of nginx", found[0], wanted)
    expect("statuses of Tidegate", found[1], wanted)


@pair("nginx: `limit_conn` bounds the requests in flight of a client", "nginx")
def connections(setup: Setup) -> None:
    zone = "limit_conn_zone $binary_remote_addr zone=one:1m;"
    for name, port in zip(("nginx", "Tidegate"), setup.converted(limited(zone, "limit_conn one 2;"))):
        setup.upstream.released.clear()
        found: queue.Queue[int] = queue.Queue()
        for _ in range(4):
            threading.Thread(target=lambda: found.put(ask(port, "/api/held").status), daemon=True).start()
        expect(f"rejections of {name}", [found.get(timeout=TIMEOUT) for _ in range(2)], REJECTED * 2)
        setup.upstream.released.set()
        expect(f"other responses of {name}", [found.get(timeout=TIMEOUT) for _ in range(2)], GRANTED * 2)


@pair("nginx: several zones, inner limits, empty keys and dry runs", "nginx")
def scopes(setup: Setup) -> None:
    http = """map $arg_key $limited { default $binary_remote_addr; "" ""; }
  limit_req_zone $binary_remote_addr zone=outer:1m rate=1r/m;
  limit_req_zone $binary_remote_addr zone=inner:1m rate=1r/m;
  limit_req_zone $server_name zone=all:1m rate=1r/m;
  limit_req_zone $limited zone=keyed:1m rate=1r/m;
  limit_req_zone $binary_remote_addr zone=dry:1m rate=1r/m;
  limit_req zone=outer burst=4 nodelay;"""
    forward = "proxy_pass http://127.0.0.1:9000; }"
    server = f"""location /inner/ {{ limit_req zone=inner burst=1 nodelay; {forward}
    location /both/ {{ limit_req zone=inner burst=1 nodelay; limit_req zone=all burst=2 nodelay; {forward}
    location /keyed/ {{ limit_req zone=keyed; {forward}
    location /dry/ {{ limit_req_dry_run on; limit_req zone=dry; {forward}
    location /file/ {{ limit_req zone=outer burst=4 nodelay; return 204; }}"""
    ports = setup.converted(configuration(http, server))
    for path, client, wanted in (
        ("/inner/", "127.0.0.2", [200] * 2 + [429] * 4),
        ("/", "127.0.0.2", [200] * 5 + [429]),
        ("/both/", "127.0.0.2", [429] * 6),
        ("/both/", "127.0.0.3", [200] * 2 + [429] * 4),
        ("/both/", "127.0.0.4", [200] + [429] * 5),
        ("/keyed/", "127.0.0.5", [200] * 6),
        ("/keyed/?key=a", "127.0.0.5", [200] + [429] * 5),
        ("/dry/", "127.0.0.5", [200] * 6),
        ("/file/", "127.0.0.5", [204] * 6),
    ):
        found = statuses(ports, path, Burst(0, 6, client))
        expect(f"statuses of nginx for {path} of {client}", found[0], [wanted])
        expect(f"statuses of Tidegate for {path} of {client}", found[1], [wanted])


@pair("nginx: the order of locations, and the clients that they admit", "nginx")
def locations(setup: Setup) -> None:
    forward = "proxy_pass http://127.0.0.1:9000; }"
    server = f"""location = /exact {{ return 281; }}
    location ^~ /static/ {{ return 282; }}
    location ~ \\.php$ {{ return 283; }}
    location ~* \\.(jpg|png)$ {{ return 284; }}
    location /a {{ return 285; }}
    location /a/b/ {{ return 286; }}
    location /deny/ {{ deny 127.0.0.2; {forward}
    location /mixed/ {{ deny 127.0.0.2; allow 127.0.0.0/8; deny all; {forward}
    location /any/ {{ satisfy any; allow 127.0.0.3; deny all; {forward}
    location /get/ {{ limit_except POST {{ deny all; }} {forward}"""
    ports = setup.converted(configuration("", server))
    files = ["/", "/exact", "/exactly", "/static/x.php", "/x.php", "/x.PHP", "/x/y.php", "/x.php/y", "/x.JPG"]
    # Not `/a/b`: a slash at the end makes no difference in the rule file.
    prefixes = ["/a", "/ab", "/a/b/c", "/a/b/c.jpg", "/A", "/a.php", "/a/", "/b", "/b/a"]
    for path in files + prefixes + ["/deny/x", "/mixed/x", "/any/x", "/get/x"]:
        for client in ("127.0.0.2", "127.0.0.3"):
            nginx, tidegate = (ask(port, path, client).status for port in ports)
            expect(f"status for {path} of {client}", tidegate, nginx)
