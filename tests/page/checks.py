"""The checks of the dashboard. Each uses the page as an operator does, or compares it with the API."""

from __future__ import annotations

import http.server
import json
import re
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator

import replay
from scene import FOLDER, TOKEN, Scene
from webdriver import free_port, wait_until

PAGES = ["", "limit/shop/all", "limit/api/per-key", "route/shop", "limit/%2Fedge/per-user", "route/%2Fedge", "store", "overrides", "explain"]

Check = Callable[[Scene], None]
checks: list[tuple[str, Check]] = []


def check(sentence: str) -> Callable[[Check], Check]:
    """Registers a check. Checks run in their order in this file."""

    def register(function: Check) -> Check:
        checks.append((sentence, function))
        return function

    return register


def expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: {found!r:.700}, not {wanted!r:.300}")


def cells(scene: Scene, row: str, table: str) -> list[str]:
    """Returns the texts of a row, which its first cell names, in the table of a caption."""
    script = """
      const table = [...document.querySelectorAll('table')].find((table) => table.caption.textContent.startsWith(arguments[0]));
      const row = [...(table?.tBodies[0].rows ?? [])].find((row) => row.cells[0].textContent === arguments[1]);
      return row ? [...row.cells].map((cell) => cell.textContent) : [];"""
    return scene.browser.run(script, table, row)


def number(text: str) -> float:
    return float(text.replace(",", ""))


@check("a page without traffic says what to do")
def empty(scene: Scene) -> None:
    scene.show()
    text = scene.browser.text("main")
    expect("the hint", "No requests yet" in text and "Send a request" in text, True)
    scene.browser.resize(1400)


@check("the figures of the page are those of /metrics")
def figures(scene: Scene) -> None:
    scene.start_load()
    scene.show()
    # The load runs until the charts and the rates have values.
    wait_until("rejections", lambda: number((cells(scene, "shop", "Routes") or "000")[2]) > 5, 20)
    scene.stop_load()
    gateway = scene.gateway
    for route in ("shop", "api"):
        wanted = gateway.metric(f'tidegate_responses_total{{route="{route}",')
        wait_until(f"{wanted} requests", lambda: number(cells(scene, route, "Routes")[5]) == wanted)
        scene.show(f"route/{route}")
        rejected = gateway.metric(f'tidegate_responses_total{{route="{route}",code="429"}}')
        expect("rejected requests", number(cells(scene, "rejected with 429", "Counts")[4]), rejected)
        scene.show()
    for limit in ("shop/all", "api/per-key", "api/next-year"):
        route, name = limit.split("/")
        scene.show(f"limit/{limit}")
        for outcome in ("allowed", "limited", "shadow_limited", "store_failed"):
            series = f'tidegate_decisions_total{{route="{route}",limit="{name}",outcome="{outcome}"}}'
            expect(f"{outcome} of {limit}", number(cells(scene, outcome, "Counts")[4]), gateway.metric(series))
    scene.start_load()


@check("rejected clients stand on the first screen, also those without credentials")
def first_screen(scene: Scene) -> None:
    browser = scene.browser
    for _ in range(3):
        expect("the status", scene.gateway.get("/partners/a"), 401)
    browser.resize(1400)
    scene.show()
    table = "Clients rejected most"
    script = """
      const table = [...document.querySelectorAll('table')].find((table) => table.caption.textContent.startsWith(arguments[0]));
      return [...(table?.tBodies[0].rows ?? [])].map((row) => [row.cells[1].textContent, row.getBoundingClientRect().bottom]);"""
    rows = wait_until("the rejected clients", lambda: [row for row in browser.run(script, table) if row[0] == "partners: credentials"] and browser.run(script, table))
    expect(f"{rows} on the first screen", all(bottom <= 900 for _, bottom in rows), True)


@check("the clients with the most requests are listed, and sorted by bytes")
def talkers(scene: Scene) -> None:
    browser = scene.browser
    scene.show()
    row = lambda: cells(scene, "127.0.0.1", "Clients with the most requests")
    wait_until("the client", lambda: row() and number(row()[1]) > 100)
    browser.choose(".order select", "bytes")
    wait_until("the bytes", lambda: row() and re.fullmatch(r"[\d.]+ k?M?B", row()[2]))


@check("a table of 90 routes has pages and a search, and no route is left out")
def search(scene: Scene) -> None:
    browser = scene.browser
    routes = "".join(f"  - {{ name: r{number:02}, match: {{ path: /{number} }}, respond: {{ status: 204 }} }}\n" for number in range(90))
    gateway = scene.start_gateway("many", f"listen: 127.0.0.1:0\nadmin: '127.0.0.1:0'\nroutes:\n{routes}")
    for number_ in range(90):
        expect("the status", gateway.get(f"/{number_}"), 204)
    scene.show(gateway=gateway)
    wait_until("the pages", lambda: "1 to 12 of 90" in browser.text("main"))
    browser.run("document.querySelector('[aria-label^=\"Next page: Routes\"]').click()")
    expect("the second page", "13 to 24 of 90" in browser.text("main"), True)
    browser.type("[aria-label^='Search: Routes']", "r89")
    wait_until("the route", lambda: cells(scene, "r89", "Routes"))
    expect("a duration", cells(scene, "r89", "Routes")[6].endswith("ms"), True)
    check_accessible(scene, "search")


@check("a rejected rule file shows its five errors until a valid file is applied")
def errors(scene: Scene) -> None:
    scene.show()
    rules = scene.gateway.rules
    valid = rules.read_text()
    broken = valid.replace("rate: 60", "rate: none").replace("rate: 10,", "rate: 0,").replace("rate: 5,", "raet: 5,")
    broken = broken.replace("mode: PER_CLIENT, client: ip", "mode: PER_CLIENTS, client: ip").replace("builtin:echo", "ftp://x")
    rules.write_text(broken)
    alerts = lambda: scene.browser.text("#alerts")
    wait_until("the errors", lambda: "5 errors" in alerts(), 30)
    shown = scene.browser.run("return [...document.querySelectorAll('#alerts li li')].map((item) => item.textContent)")
    expect("the number of errors", len(shown), 5)
    for error in shown:
        expect(f"the place of {error}", bool(re.search(r"tidegate\.yaml:\d+:\d+ ", error)), True)
    rules.write_text(valid)
    wait_until("no errors", lambda: alerts() == "", 30)


@check("a client is looked up and reset with a confirmation and a token")
def reset(scene: Scene) -> None:
    browser = scene.browser
    scene.stop_load()
    for _ in range(12):
        scene.gateway.get("/shop/items")
    scene.show("limit/shop/per-ip")
    browser.choose("select[name=by]", "address")
    browser.type("textarea[name=client]", "127.0.0.1")
    browser.click(".fields + button")
    wait_until("the client", lambda: "127.0.0.1" in browser.text(".result"))
    expect("the client has used permits", "\n0" in browser.text(".result").split("Used")[1][:3], False)
    browser.run("[...document.querySelectorAll('.result button')].find((b) => b.textContent === 'Reset this client').click()")
    browser.type("dialog input[name=reason]", "checked by a browser")
    browser.type("dialog input[name=token]", "x" * 32)
    browser.click("dialog button.primary")
    wait_until("a rejection", lambda: "not in the token file" in browser.text("dialog"))
    browser.type("dialog input[name=token]", TOKEN)
    browser.click("dialog button.primary")
    wait_until("the outcome", lambda: "Reset: 1 buckets existed" in browser.text("main"))
    state = scene.other.api("limits/shop/per-ip/client?address=127.0.0.1")
    expect("permits in use on the other gateway", state["used"], 0)
    used = lambda: browser.text(".result").split("Used")[1].split()[0]
    wait_until("the card to show the reset", lambda: used() == "0")
    scene.gateway.get("/shop/items")
    wait_until("the card to show a request", lambda: used() == "1")
    scene.show("overrides")
    wait_until("the audit list", lambda: "checked by a browser" in browser.text("main"))
    expect("the token in the address", TOKEN in browser.run("return location.href + localStorage.length"), False)
    scene.start_load()


@check("one red box lists all problems, each with its kind and its subject, and is accessible")
def problems(scene: Scene) -> None:
    browser = scene.browser
    gateway = scene.start_gateway("problems", (FOLDER / "problems.yaml").read_text())
    scene.show(gateway=gateway)
    wait_until("the problems", lambda: "6 problems" in browser.text("#alerts"), 30)
    boxes = "return document.querySelectorAll('#alerts .alert').length"
    expect("the number of boxes", browser.run(boxes), 1)
    expect("the role", browser.run("return document.getElementById('alerts').getAttribute('role')"), "status")
    browser.click("#alerts summary")
    items = browser.run("return [...document.querySelectorAll('#alerts li')].map((item) => item.textContent)")
    expect("the upstream first", items[0].startswith("Upstream gone most targets fail"), True)
    for number in range(1, 6):
        start = f"Target gone/http://127.0.0.{number}:1 fails its health checks: "
        expect(f"{start} in {items}", any(item.startswith(start) for item in items), True)
    check_accessible(scene, "with problems")


@check("a client has the permits of each tier until the operator selects its tier")
def tiers(scene: Scene) -> None:
    browser = scene.browser
    gateway = scene.start_gateway("tiers", (FOLDER / "problems.yaml").read_text())
    for _ in range(4):
        expect("the status", gateway.get("/a", **{"X-Api-Key": "k", "X-Plan": "pro"}), 200)
    scene.show("limit/api/plan", gateway)
    wait_until("the tiers", lambda: "100,000 per hour" in browser.text("main"))
    browser.type("textarea[name=client]", "k")
    browser.click(".fields + button")
    text = wait_until("the client", lambda: browser.text(".result"))
    expect(f"the tier in {text}", "unknown: only requests of the client show it" in text, True)
    rows = browser.run("return [...document.querySelectorAll('.result tbody tr')].map((row) => row.textContent)")
    expect(f"the tiers in {rows}", [row.startswith(start) for row, start in zip(rows, ("free (default)2 per hour04", "pro100,000 per hour99,9964now"))], [True, True])
    check_accessible(scene, "with tiers")
    browser.choose("select[name=tier]", "pro")
    browser.click(".fields + button")
    text = wait_until("the tier", lambda: "as you selected" in browser.text(".result") and browser.text(".result"))
    expect(f"the permits in {text}", text.split("Remaining")[1].split()[:1], ["99,996"])
    scene.show("limit/%40/daily", gateway)
    wait_until("the routes", lambda: "Routes that share the limit" in browser.text("main"))
    expect("the settings", "name: daily" in wait_until("the settings", lambda: "rate: 20000" in browser.text("pre") and browser.text("pre")), True)


@check("a client of several sources is looked up with one value a line")
def pair(scene: Scene) -> None:
    browser = scene.browser
    scene.gateway.get("/v1/pair", **{"X-Api-Key": "pair"})
    scene.show("limit/api/pair")
    browser.type("textarea[name=client]", "pair\n/v1/pair")
    browser.click(".fields + button")
    text = wait_until("the client", lambda: browser.text(".result"))
    expect(f"the permits in {text}", text.split("Used")[1].split()[:1], ["1"])


def narrow(scene: Scene) -> None:
    """Checks that a narrow page shows all columns of the overrides and of the audit list."""
    outside = """
      return [...document.querySelectorAll('tbody tr > *')].filter((cell) => {
        const { left, right, height } = cell.getBoundingClientRect();
        return !height || left < 0 || right > document.documentElement.clientWidth;
      }).map((cell) => cell.dataset.label ?? 'head');"""
    labels = "return [...document.querySelectorAll('tbody td')].map((cell) => cell.dataset.label)"
    wait_until("the audit list", lambda: "Outcome" in scene.browser.run(labels))
    scene.browser.resize(390)
    shown = scene.browser.run(labels)
    for label in ("Reason", "By", "Change", "Outcome"):
        expect(f"{label} in {shown}", label in shown, True)
    expect("cells outside of the page", scene.browser.run(outside), [])
    scene.browser.resize(1400)


@check("a ban that is made on the page applies to the other gateway, and ends there when it is removed")
def ban(scene: Scene) -> None:
    browser = scene.browser
    scene.stop_load()
    scene.show("overrides")
    wait_until("the list", lambda: "No override is in force" in browser.text("main"))
    expect("the status before", scene.other.get("/v1/orders", **{"X-Api-Key": "other"}), 200)
    browser.choose(".override select[name=action]", "ban")
    browser.type(".override textarea[name=value]", "127.0.0.1")
    browser.type(".override input[name=reason]", "scraper")
    browser.click(".override .buttons button")
    browser.click("dialog button.primary")
    wait_until("the override", lambda: "is in force" in browser.text(".done"))
    wait_until("the ban", lambda: scene.other.get("/v1/orders", **{"X-Api-Key": "other"}) == 403, 30)
    wait_until("the row", lambda: cells(scene, "127.0.0.1/32", "Overrides") or cells(scene, "127.0.0.1", "Overrides"))
    narrow(scene)
    browser.run("[...document.querySelectorAll('td button')].find((b) => b.textContent === 'Remove').click()")
    browser.click("dialog button.primary")
    wait_until("the end", lambda: scene.other.get("/v1/orders", **{"X-Api-Key": "other"}) == 200, 30)
    scene.start_load()


@check("the page names the client that is rejected most, the line of its rule and since when")
def rejected(scene: Scene) -> None:
    scene.show()
    script = """
      const table = [...document.querySelectorAll('table')].find((table) => table.caption.textContent.startsWith('Clients'));
      return [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent));"""
    rows = wait_until("rejected clients", lambda: scene.browser.run(script), 15)
    by_limit = {row[1]: row for row in rows}
    lines = scene.gateway.rules.read_text().splitlines()
    for limit, start in (("shop/all", "- { name: all"), ("api/per-key", "- { name: per-key")):
        line = next(number for number, line in enumerate(lines, 1) if line.strip().startswith(start))
        expect("the place", by_limit[limit][3].endswith(f"tidegate.yaml:{line}"), True)
        expect("since", by_limit[limit][4].endswith("ago"), True)


@check("an operator exempts a rejected client by its value, and the card shows the override")
def exempt(scene: Scene) -> None:
    browser = scene.browser
    scene.show("limit/api/per-key")
    click = "[...document.querySelectorAll('a.client')].find((link) => link.textContent.startsWith('key-1 ('))?.click(); return 1"
    wait_until("the client", lambda: browser.run(click) and "?client=" in browser.run("return location.hash"))
    wait_until("the card", lambda: re.search(r"Client\s+key-1 \([0-9a-f]{8}…\)", browser.text(".result")))
    browser.click(".result summary")
    browser.type(".result input[name=reason]", "partner")
    browser.click(".result .override .buttons button")
    expect("the title", bool(re.match(r"Exempt key-1 \([0-9a-f]{8}…\)", browser.text("dialog"))), True)
    browser.type("dialog input[name=token]", TOKEN)
    browser.click("dialog button.primary")
    wait_until("the override", lambda: "exempt, ends in" in browser.text(".result"))
    scene.show("overrides")
    wait_until("the row", lambda: "key-1 (" in browser.text("tbody th"))
    browser.run("[...document.querySelectorAll('td button')].find((b) => b.textContent === 'Remove').click()")
    browser.click("dialog button.primary")
    wait_until("the end", lambda: "No override is in force" in browser.text("main"))


@check("a limit of a domain has a page with the permits of a client, and a call to the domain is explained")
def domain(scene: Scene) -> None:
    browser = scene.browser
    scene.show("limit/%2Fedge/per-user")
    wait_until("the rate", lambda: "7 per" in browser.text("main"))
    expect("addresses", "address" in browser.text("select[name=by]"), False)
    browser.type("textarea[name=client]", "alice")
    browser.click(".fields + button")
    text = wait_until("the client", lambda: browser.text(".result"))
    expect(f"the permits in {text}", text.split("Remaining")[1].split()[:1], ["7"])
    browser.click(".crumbs a:last-child")
    wait_until("the domain", lambda: browser.text("h1") == "Domain edge" and "/edge/per-user" in browser.text("table"))
    wait_until("its settings", lambda: "name: per-user" in browser.text("main pre"))
    scene.show("explain")
    wait_until("the domains", lambda: "edge" in browser.text("select[name=domain]"))
    browser.type("textarea[name=descriptors]", "user=alice\nother=x")
    browser.click("form.call .buttons button")
    text = wait_until("the explanation", lambda: browser.text("form.call + .result"))
    expect("the call", (text.startswith("Passes: "), "7 permits remain" in text, "no limit" in text), (True, True, True))


@check("the form explains a request without a token")
def explain(scene: Scene) -> None:
    browser = scene.browser
    scene.show("explain")
    browser.type("input[name=url]", "http://a.example/v1/orders")
    browser.type("textarea", "X-Api-Key: key-1")
    browser.click("form button.primary")
    text = wait_until("the explanation", lambda: browser.text(".result"))
    for word in ("api", "per-key", "next-year"):
        expect(f"{word} in {text}", word in text, True)
    expect(f"the verdict in {text}", text.startswith(("Admitted: ", "Rejected: ")), True)
    scene.show("explain")
    browser.type("textarea", "X-Api-Key: key-1\nx-api-key: key-2")
    browser.click("form button.primary")
    wait_until("the explanation", lambda: browser.text(".result h2"))
    browser.click(".result summary")
    text = browser.text(".result pre")
    expect(f"both lines in {text}", "was sent twice" in text, True)


@check("an unknown page links to the overview")
def unknown(scene: Scene) -> None:
    for page in ("other", "constructor"):
        scene.show(page)
        expect(page, scene.browser.text("main"), "Not found\nOverview")


@check("axe-core finds no violation on any page, in light and dark, at 390 and 1,400 pixels")
def accessible(scene: Scene) -> None:
    browser = scene.browser
    for page in PAGES:
        scene.show(page)
        wait_until("the page", lambda: browser.run("return document.querySelectorAll('main > *').length > 1"))
        if page.startswith("explain"):
            browser.click("form button.primary")
        check_accessible(scene, page)


def check_accessible(scene: Scene, page: str) -> None:
    """Runs axe-core on the current page, and checks that it is not wider than the window."""
    browser = scene.browser
    axe = Path("target/page/node_modules/axe-core/axe.min.js").read_text()
    run = """
      const done = arguments[0];
      axe.run(document, { resultTypes: ['violations'], preload: false, iframes: false }).then((result) => done(result.violations.map((found) =>
        `${found.id}: ${found.help}: ${found.nodes.slice(0, 3).map((node) => node.html.slice(0, 150)).join(' | ')}`)))
        .catch((error) => done([String(error)]));"""
    browser.run(axe + "; window.axe = axe;")
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        for width in (390, 1400):
            browser.resize(width)
            expect(f"violations of `{page}`, {scheme}, {width}", browser.run_async(run), [])
            overflow = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
            expect(f"pixels beyond the right edge of `{page}` at {width}", overflow, 0)


@check("the page of a replay is accessible, and shows the counts of the rate at its line")
def replayed(scene: Scene) -> None:
    browser = scene.browser
    browser.open(replay.write(scene).as_uri())
    text = browser.text("main")
    for part in ("Rejected", "login/per-ip", "203.0.113.99", "1 line not parsed", "<script>document.title", "x-api-key"):
        expect(f"{part} on the page", part in text, True)
    expect("the title", browser.run("return document.title").startswith("Replay of "), True)
    check_accessible(scene, "replay")

    expect("the section", browser.text("#limit-3 h2"), "login/per-ip")

    def state() -> list[str]:
        return browser.run("""
          const find = (part) => document.getElementById(`limit-3-${part}`);
          return [...['shown', 'above', 'permits'].map((part) => find(part).textContent),
            find('across').getAttribute('y1'), find('rate').getAttribute('aria-valuetext')];""")

    before = state()
    expect("the rate of the limit", before[0], "10 per 1m")
    browser.call("POST", browser.find("#limit-3-rate") + "/value", {"text": "\ue012" * 9})  # the left arrow
    after = state()
    expect("the chosen rate", after[0], "1 per 1m")
    expect("the unchanged parts", [one for one, other in zip(before, after) if one == other], [])
    for part in (1, 2):
        counts = [number(texts[part].split(" (")[0]) for texts in (before, after)]
        expect(f"more above the rate in {counts}", 0 < counts[0] < counts[1], True)


@check("an outage of the store is shown with its cause, and its end")
def outage(scene: Scene) -> None:
    scene.show()
    scene.redis.terminate()
    scene.redis.wait(5)
    wait_until("the outage", lambda: "does not decide" in scene.browser.text("#alerts"))
    wait_until("the use", lambda: cells(scene, "shop/all", "Limits")[2] == "unknown")
    expect("the time of a decision", "per decision" in scene.browser.text("main"), False)
    scene.restart_redis()
    wait_until("the end", lambda: scene.browser.text("#alerts") == "", 20)


@check("the page says that the gateway is gone, and continues with its successor")
def reconnects(scene: Scene) -> None:
    scene.stop_load()
    rules = "listen: 127.0.0.1:0\nadmin: '@ADMIN@'\nupstreams: { app: { targets: ['builtin:echo'] } }\nroutes: [{ name: all, match: {}, upstream: app }]\n"
    port = free_port()
    rules = rules.replace("@ADMIN@", f"127.0.0.1:{port}")
    first = scene.start_gateway("first", rules)
    scene.show(gateway=first)
    first.process.kill()
    first.process.wait(5)
    wait_until("the loss", lambda: "does not respond" in scene.browser.text("#alerts"))
    scene.start_gateway("second", rules)
    wait_until("the new gateway", lambda: scene.browser.text("#stream") == "Live", 15)
    expect("alerts", scene.browser.text("#alerts"), "")


@check("a page with `dashboard: read_only` has no form for changes, also if it is the first page")
def read_only(scene: Scene) -> None:
    forms = lambda: scene.browser.run("return document.querySelectorAll('main form.override').length")
    shown = lambda: "No override is in force" in scene.browser.text("main")
    rules = "listen: 127.0.0.1:0\nadmin: { address: '127.0.0.1:0', dashboard: read_only }\nupstreams: { app: { targets: ['builtin:echo'] } }\nroutes: [{ name: all, match: {}, upstream: app }]\n"
    scene.show("overrides", gateway=scene.start_gateway("read-only", rules))
    wait_until("the overrides", shown)
    expect("forms", forms(), 0)
    scene.show("overrides")
    wait_until("the overrides", shown)
    expect("forms of a gateway that accepts changes", forms(), 1)


@check("keyboard users reach the content, the pages and the dialog, and Escape cancels a change")
def keyboard(scene: Scene) -> None:
    browser = scene.browser
    scene.show("limit/shop/all")

    def press(*keys: str) -> None:
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        browser.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    tab, enter, escape = "\ue004", "\ue007", "\ue00c"
    browser.run("document.activeElement.blur()")
    press(tab)
    expect("the first focus", browser.run("return document.activeElement.textContent"), "Skip to the content")
    press(enter)
    expect("the focus", browser.run("return document.activeElement.id"), "main")
    browser.run("[...document.querySelectorAll('main button')].at(-1).focus()")
    press(enter)
    expect("the dialog", browser.run("return document.querySelector('dialog').open"), True)
    press(escape)
    expect("the dialog", browser.run("return document.querySelector('dialog').open"), False)


@check("the page loads nothing from other hosts, and logs no error")
def contained(scene: Scene) -> None:
    hosts = set()
    for entry in scene.browser.log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            hosts.add(re.sub(r"^(\w+://[^/:]*|\w+:).*", r"\1", message["params"]["request"]["url"]))
    own = ("http://127.0.0.1", "file://", "data:", "about:", "chrome:")  # `chrome:` is the empty tab
    expect("other hosts", [host for host in hosts if not host.startswith(own)], [])
    known = ("Failed to load resource", "net::ERR_")  # the outages and rejections that the checks cause
    errors = [entry["message"] for entry in scene.browser.log("browser") if entry["level"] == "SEVERE"]
    expect("errors", [error for error in errors if not any(word in error for word in known)], [])


@check("the policy forbids scripts in the page and requests to other hosts")
def policy(scene: Scene) -> None:
    scene.show()
    script = """
      const done = arguments[0], found = [];
      document.addEventListener('securitypolicyviolation', (event) => { found.push(event.effectiveDirective); if (found.length === 2) done(found.sort()); });
      const inline = document.createElement('script'); inline.textContent = 'window.injected = 1'; document.head.append(inline);
      const image = new Image(); image.src = 'http://localhost:1/x.png';"""
    expect("violations", scene.browser.run_async(script), ["img-src", "script-src-elem"])
    expect("the script", scene.browser.run("return window.injected ?? null"), None)


CORS_RULES = """
listen: 127.0.0.1:0
admin: { address: "127.0.0.1:0", tokens: { file: tokens } }
requests: { request_id: true }
upstreams: { app: { targets: ["builtin:echo"] } }
routes:
  - name: api
    match: { path: /** }
    upstream: app
    cors: { origins: ["http://127.0.0.1:@PAGE@"], credentials: true }
    limits:
      - { name: per-ip, mode: PER_CLIENT, client: ip, rate: 1, interval: 1h }
"""


@check("a page of another origin reads status, Retry-After and the body of a 429, and no other page does")
def other_origin(scene: Scene) -> None:
    fetch = """
      const done = arguments[arguments.length - 1];
      fetch(arguments[0], { credentials: 'include', headers: { 'x-key': 'one' } })
        .then(async (response) => done([
          response.status,
          ...['retry-after', 'ratelimit', 'ratelimit-policy'].map((name) => response.headers.get(name)),
          (response.headers.get('x-request-id') || '').length > 0,
          response.status === 429 ? (await response.json())['violated-policies'] : null,
        ]))
        .catch((error) => done(String(error)));"""
    with page_server() as page, page_server() as other:
        gateway = scene.start_gateway("cors", CORS_RULES.replace("@PAGE@", str(page)))
        scene.browser.open(f"http://127.0.0.1:{page}/")
        first, second = (scene.browser.run_async(fetch, gateway.url + "/a") for _ in range(2))
        expect("the first response", first, [200, None, '"per-ip";r=0;t=3600', '"per-ip";q=1;w=3600', True, None])
        expect("the status and the body", [second[0], second[5]], [429, ["per-ip"]])
        expect("Retry-After", 3590 <= int(second[1]) <= 3600, True)
        expect("the other fields", second[3:5], ['"per-ip";q=1;w=3600', True])
        scene.browser.open(f"http://127.0.0.1:{other}/")
        expect("another page", scene.browser.run_async(fetch, gateway.url + "/a"), "TypeError: Failed to fetch")


@contextmanager
def page_server() -> Iterator[int]:
    """Serves an empty page. Returns the port."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
