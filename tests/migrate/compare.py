"""Compares nginx and Tidegate for configurations of nginx: `compare.py TIDEGATE FILE...`.

Each file is reduced to what both gateways can do on a machine without its servers, certificates and files: the same
text, with other ports, runs in nginx and is converted for Tidegate. Both get the same requests. A difference is listed
with the findings of the report that could explain it. Not a test: the files are not a part of this repository.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benches" / "peers"), str(ROOT / "tests" / "clients")]

from process import free_port  # noqa: E402
from samples import of_regex  # noqa: E402
from setup import Programs, Setup  # noqa: E402
from traffic import ask  # noqa: E402

# Directives that neither decide about requests nor work without files, certificates and modules.
DROPPED = re.compile(
    r"(user|pid|daemon|error_log|access_log|load_module|worker_.*|log_format|ssl|ssl_.*|http2|http3|quic.*|include|types|"
    r"lua_.*|.*_by_lua.*|more_.*|brotli.*|zstd.*|js_.*|perl.*|proxy_cache.*|fastcgi_(?!pass).*|uwsgi_(?!pass).*|"
    r"scgi_(?!pass).*|proxy_ssl.*|resolver.*|geoip.*|vod.*|passenger.*|auth_basic_user_file|resolver|proxy_temp_path|"
    r"client_body_temp_path|default_type|status_zone|zone|health_check|match|js_.*|otel.*|opentracing.*|modsecurity.*|"
    r"random_index|dav_.*|create_full_put_path|image_filter.*|xslt.*|mp4.*|flv|slice|secure_link.*|userid.*|thread_pool|"
    r"limit_rate.*|error_page|recursive_error_pages|proxy_bind|proxy_store.*|env|pcre_jit|google_perftools.*|stub_status|sub_filter.*|ssi.*|expires)"
)
OTHER_SERVERS = {"fastcgi_pass", "uwsgi_pass", "scgi_pass", "memcached_pass", "redis_pass", "grpc_pass"}
HTTP_BLOCKS = {"server", "upstream", "map", "geo"}
TOKEN = re.compile(r"\s+|#[^\n]*|([{};])|\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)'|((?:\$\{[^}]*\}|\\.|[^\s{};\\])+)", re.S)
MAX_REQUESTS = 400


@dataclass
class Directive:
    words: list[str]
    inner: list[Directive] | None = None

    def text(self) -> str:
        words = " ".join(quoted(word) for word in self.words)
        if self.inner is None:
            return f"{words};\n"
        return f"{words} {{\n{''.join(directive.text() for directive in self.inner)}}}\n"


@dataclass
class Site:
    """What requests need: the ports of each gateway, and the hosts and paths of all servers."""

    ports: dict[str, tuple[int, int]] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=lambda: {"other.example"})
    paths: set[str] = field(default_factory=lambda: {"/", "/x", "/x/y.css", "/x.php"})


def quoted(word: str) -> str:
    return word if re.fullmatch(r"[^\s{};\"'\\#]+", word) else '"' + word.replace('"', '\\"') + '"'


def parse(text: str) -> list[Directive]:
    """Parses a configuration. Texts keep their backslashes, except before quotes."""
    stack: list[list[Directive]] = [[]]
    words: list[str] = []
    position = 0
    while position < len(text):
        found = TOKEN.match(text, position)
        if not found:
            raise ValueError(f"no token at {text[position:position + 20]!r}")
        position = found.end()
        mark, double, single, plain = found.groups()
        if mark == ";":
            stack[-1].append(Directive(words))
            words = []
        elif mark == "{":
            stack[-1].append(Directive(words, []))
            stack.append(stack[-1][-1].inner or [])
            stack[-2][-1].inner = stack[-1]
            words = []
        elif mark == "}":
            stack.pop()
        elif double is not None or single is not None:
            quote = '"' if double is not None else "'"
            words.append((double if double is not None else single).replace("\\" + quote, quote))
        elif plain is not None:
            words.append(plain)
    return stack[0]


class Reduced:
    """A configuration that runs on this machine."""

    def __init__(self, text: str, folder: Path):
        directives = parse(text)
        http = [inner for directive in directives if directive.words[:1] == ["http"] for inner in directive.inner or []]
        http += [directive for directive in directives if directive.words[0] in HTTP_BLOCKS]
        if not any(directive.words == ["server"] for directive in http):
            http = [Directive(["server"], http or directives)]
        self.site, self.folder = Site(), folder
        self.http = [reduced for directive in http if (reduced := self.reduce(directive, "http"))]
        for server in (directive for directive in self.http if directive.words == ["server"]):
            self.read(server)

    def reduce(self, directive: Directive, context: str) -> Directive | None:
        name = directive.words[0]
        if DROPPED.fullmatch(name) or name == "server" and context == "upstream" and directive.inner is None:
            return Directive(["server", "127.0.0.1:9000"]) if name == "server" else None
        words = directive.words
        if name in OTHER_SERVERS:
            words = ["proxy_pass", "http://127.0.0.1:9502"]
        elif name == "proxy_pass":
            words = ["proxy_pass", "http://127.0.0.1:9000"]
        elif name in ("root", "alias"):
            words = [name, str(self.folder / "empty")]
        elif name == "limit_req_zone":
            words = [re.sub("^rate=.*", "rate=1r/m", word) for word in words]
        elif name == "limit_req":
            words = [word for word in words if not word.startswith("delay=")]
            words += ["nodelay"] if "nodelay" not in words and any(w.startswith("burst=") for w in words) else []
            words = [re.sub(r"^burst=\d+", lambda found: f"burst={min(3, int(found[0][6:]))}", word) for word in words]
        elif name == "listen":
            words = ["listen", words[1], *[word for word in words[2:] if word == "default_server"]]
        inner = directive.inner
        if inner is not None:
            inner = [one for each in inner if (one := self.reduce(each, name))] if name not in ("map", "geo") else inner
        return Directive(words, inner)

    def read(self, server: Directive) -> None:
        """Reads the listeners, hosts and paths of a server."""
        assert server.inner is not None
        listens = [inner for inner in server.inner if inner.words[0] == "listen"]
        if not listens:
            server.inner.insert(0, Directive(["listen", "80"]))
            listens = server.inner[:1]
        kept = []
        for listen in listens:
            address = re.sub(r"^(\[.*\]|\*|[\w.-]+):(\d+)$", r"\2", listen.words[1])
            if not address.isdigit():
                address = "80"
            self.site.ports.setdefault(address, (free_port(), free_port()))
            if address not in kept:
                listen.words[1] = f"PORT{address}"
                kept.append(address)
            else:
                server.inner.remove(listen)
        for inner in server.inner:
            if inner.words[0] == "server_name":
                names = (name.lstrip(".").replace("*", "x") for name in inner.words[1:] if not name.startswith("~"))
                self.site.hosts.update(name for name in names if re.fullmatch(r"[\w.-]+", name) and name != "_")
        self.locations(server)

    def locations(self, block: Directive) -> None:
        for inner in block.inner or []:
            if inner.words[0] != "location":
                continue
            modifier, pattern = (inner.words[1], inner.words[2]) if len(inner.words) > 2 else ("", inner.words[1])
            if modifier in ("~", "~*"):
                self.site.paths.update(of_regex(pattern))
            elif pattern.startswith("/"):
                self.site.paths.update({pattern, pattern + "x", pattern.rstrip("/") + "/x", pattern.rstrip("/") + "/x.php"})
            self.locations(inner)

    def text(self, gateway: int, upstreams: dict[str, int]) -> str:
        """Returns the configuration for nginx (0) or for the conversion (1)."""
        text = "events {\n}\nhttp {\n" + "".join(directive.text() for directive in self.http) + "}\n"
        text = re.sub(r"PORT(\d+)", lambda found: f"127.0.0.1:{self.site.ports[found[1]][gateway]}", text)
        for port, here in upstreams.items():
            text = text.replace(port, str(here))
        return text


def compare(setup: Setup, path: Path) -> tuple[int, list[str]]:
    """Returns the number of requests, and the differences."""
    (setup.folder / "empty").mkdir(exist_ok=True)
    reduced = Reduced(path.read_text(errors="replace"), setup.folder)
    upstreams = {"9000": setup.upstream_port, "9502": setup.failing_upstream()}
    source, rules = setup.folder / f"{len(setup.processes)}.conf", setup.folder / f"{len(setup.processes)}.yaml"
    source.write_text(reduced.text(1, upstreams))
    command = [setup.programs.tidegate, "convert", "--from", "nginx", "--allow-lost", "--json", "-o", rules, source]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    findings = json.loads(done.stdout or done.stderr)["findings"]
    rules.write_text("admin: off\n" + rules.read_text())
    site = reduced.site
    setup.start_nginx(reduced.text(0, upstreams), next(iter(site.ports.values()))[0])
    setup.start("tidegate", [setup.programs.tidegate, "run", "-c", rules], next(iter(site.ports.values()))[1])
    differences, count = [], 0
    requests = [(ports, host, path) for ports in site.ports.values() for host in sorted(site.hosts) for path in sorted(site.paths)]
    for ports, host, target in requests[:MAX_REQUESTS]:
        nginx, tidegate = (status(port, target, host) for port in ports)
        count += 1
        # Files of the configuration do not exist here: nginx forbids the list of a folder.
        has_no_file = tidegate == 404 and nginx in (403, 405) and any("files are" in one["reason"] for one in findings)
        if kind(nginx) != kind(tidegate) and not has_no_file:
            differences.append(f"{host}{target}: nginx {nginx}, Tidegate {tidegate}")
    if differences:
        differences += [f"    {one['line']} {one['verdict']} {one['setting']}: {one['reason']}" for one in findings if one["verdict"] != "same"]
    return count, differences


def status(port: int, target: str, host: str) -> int:
    """Returns the status of a response. nginx responds to `return 444` by closing the connection."""
    try:
        return ask(port, target, "127.0.0.2", host).status
    except http.client.RemoteDisconnected:
        return 403


def kind(status: int) -> int:
    """Returns the status, with equal numbers for equal decisions: rejections, and redirects of all kinds."""
    if status in (429, 503):
        return 429
    return 300 if status in (301, 302, 303, 307, 308) else status


def main() -> int:
    programs = Programs(tidegate=Path(sys.argv[1]).resolve())
    worst = 0
    for name in sys.argv[2:]:
        with Setup(programs) as setup:
            try:
                count, differences = compare(setup, Path(name))
            except Exception as error:  # noqa: BLE001: the next file may work
                log = [process.log.read_text()[-300:] for process in setup.processes if process.log.exists()]
                print(f"FAILED {name}: {str(error)[-250:]} {getattr(error, 'stderr', '')} {log if not str(error) else ''}", flush=True)
                continue
        print(f"{'DIFFERENT' if differences else 'EQUAL'} {count} {name}", *differences, sep="\n  ", flush=True)
        worst = max(worst, int(bool(differences)))
    return worst


if __name__ == "__main__":
    sys.exit(main())
