"""curl, over HTTP/1.0, HTTP/1.1 and HTTP/2 in plaintext."""

from __future__ import annotations

import subprocess

from checking import check, expect, output
from harness import Harness

VERSIONS = ("--http1.1", "--http2-prior-knowledge")


def curl(*arguments: object) -> str:
    return output("curl", "-sS", "--max-time", "10", *arguments)


def fetch(*arguments: object) -> tuple[str, list[str], str]:
    """Returns the status line, the field lines in lower case, and the body of a response."""
    head, _, body = curl("-i", *arguments).replace("\r", "").rpartition("\n\n")
    status, *fields = head.splitlines()
    return status.strip(), [field.lower() for field in fields], body


@check("curl gets responses over HTTP/1.0, HTTP/1.1 and HTTP/2 with prior knowledge")
def responses(harness: Harness) -> None:
    for option, version in (("--http1.0", "1.1"), ("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")):
        result = curl(option, "-w", "%{http_version} %{http_code}", f"{harness.url}/plain")
        expect(option, result, f"hello\n{version} 200")


# Not with HTTP/2 and prior knowledge: curl 7.88 repeats the preface on a reused connection.
@check("curl reuses its connection for the second request")
def keeps_alive(harness: Harness) -> None:
    url = f"{harness.url}/plain"
    result = curl("-o", "/dev/null", "-o", "/dev/null", "-w", "%{num_connects} ", url, url)
    expect("new connections", result.split(), ["1", "0"])


@check("8 MiB are echoed to curl, with and without a Content-Length")
def echoes(harness: Harness) -> None:
    sent, back = harness.scratch / "sent", harness.scratch / "back"
    sent.write_bytes(bytes(range(256)) * 32 * 1024)
    for option in VERSIONS:
        for coding in ((), ("-H", "transfer-encoding: chunked")):
            curl(option, *coding, "--data-binary", f"@{sent}", "-o", back, f"{harness.url}/echo")
            expect(f"{option} {coding}", back.read_bytes() == sent.read_bytes(), True)


@check("curl sends its body after 100 Continue, and not after a final response")
def continues(harness: Harness) -> None:
    wait = ("-H", "expect: 100-continue", "--expect100-timeout", "9", "--max-time", "5")
    ask = (*wait, "-d", "body", "-w", " %{http_code} %{size_upload}")
    expect("the echo", curl(*ask, f"{harness.url}/echo"), "body 200 4")
    expect("the rejection", curl(*ask, f"{harness.url}/unwanted"), " 417 0")


@check("curl gets the 103 Early Hints before the response, over both versions")
def early_hints(harness: Harness) -> None:
    back = harness.scratch / "back"
    for option, version in zip(VERSIONS, ("HTTP/1.1", "HTTP/2")):
        # curl prints fields at once only if it is verbose.
        asking = harness.start("curl", "-sv", option, "-o", back, f"{harness.url}/hints", stderr=subprocess.PIPE)
        assert asking.stderr
        result = [line.strip() for line in iter(asking.stderr.readline, "< x-hint: yes\n") if line.startswith("< ")]
        expect(option, result[0].startswith(f"< {version} 103"), True)
        expect(option, "< link: </style.css>; rel=preload; as=style" in result, True)
        curl(f"{harness.url}/more")
        expect(option, f"< {version} 200" in asking.stderr.read(), True)
        expect(option, (asking.wait(10), back.read_text()), (0, "after the hint\n"))


@check("the response to a HEAD of curl has no body")
def head_has_no_body(harness: Harness) -> None:
    for option in VERSIONS:
        status, _, body = fetch(option, "--head", f"{harness.url}/plain")
        expect(option, (status.split()[1], body), ("200", ""))


@check("curl gets 429 with Retry-After, the rate limit fields and the problem details")
def is_rejected(harness: Harness) -> None:
    for option in VERSIONS:
        ask = (option, "-H", f"x-name: {harness.name()}", f"{harness.url}/limited/plain")
        for left in (1, 0):
            _, fields, _ = fetch(*ask)
            quota = next(field for field in fields if field.startswith("ratelimit:"))
            expect("the quota", quota.startswith(f'ratelimit: "per-name";r={left};t='), True)
        status, fields, body = fetch(*ask)
        expect("the status", status.split()[1], "429")
        expect("the problem", '"violated-policies":["per-name"]' in body, True)
        names = {field.partition(":")[0] for field in fields}
        expect("its fields", names >= {"retry-after", "ratelimit", "ratelimit-policy"}, True)


@check("curl gets 502 and 504 for failed upstreams, and can reuse the connection")
def reports_failures(harness: Harness) -> None:
    for option in VERSIONS:
        result = curl(option, "-o", "/dev/null", "-w", "%{http_code}", f"{harness.url}/closed/")
        expect("closed port", result, "502")
        result = curl(option, "-o", "/dev/null", "-w", "%{http_code}", f"{harness.url}/hang")
        expect("silent upstream", result, "504")


@check("curl detects a truncated response")
def detects_truncation(harness: Harness) -> None:
    for option in VERSIONS:
        url = f"{harness.url}/broken"
        result = output("curl", "-sS", option, "-o", "/dev/null", "-w", "%{http_code}", url, codes=(0, 18, 56, 92))
        # The gateway replaces a response that breaks before its first byte is sent.
        expect("error message or status 502", "curl: (" in result or result.strip() == "502", True)


@check("PUT, DELETE, PATCH and OPTIONS of curl arrive unchanged")
def methods_arrive(harness: Harness) -> None:
    for option in VERSIONS:
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            result = curl(option, "-X", method, f"{harness.url}/request?a=b")
            expect(method, f'"method":"{method}","url":"/request?a=b"' in result, True)
