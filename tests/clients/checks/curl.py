"""curl, over HTTP/1.0, HTTP/1.1 and HTTP/2 in clear."""

from __future__ import annotations

import subprocess

from checking import check, expect, output
from stage import Stage

VERSIONS = ("--http1.1", "--http2-prior-knowledge")


def curl(*arguments: object) -> str:
    return output("curl", "-sS", "--max-time", "10", *arguments)


def shown(*arguments: object) -> tuple[str, list[str], str]:
    """The status line, the fields and the body of an answer; lines of fields in lower case."""
    head, _, body = curl("-i", *arguments).replace("\r", "").rpartition("\n\n")
    status, *fields = head.splitlines()
    return status.strip(), [field.lower() for field in fields], body


@check("curl is answered over HTTP/1.0, HTTP/1.1 and HTTP/2 with prior knowledge")
def answers(stage: Stage) -> None:
    for option, version in (("--http1.0", "1.1"), ("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")):
        told = curl(option, "-w", "%{http_version} %{http_code}", f"{stage.url}/plain")
        expect(option, told, f"hello\n{version} 200")


# Of HTTP/2 with prior knowledge, curl 7.88 sends the preface of a connection once more.
@check("curl's second request goes over the connection of its first")
def keeps_alive(stage: Stage) -> None:
    url = f"{stage.url}/plain"
    told = curl("-o", "/dev/null", "-o", "/dev/null", "-w", "%{num_connects} ", url, url)
    expect("new connections", told.split(), ["1", "0"])


@check("curl has 8 MiB echoed as they were, whether or not it tells their length")
def echoes(stage: Stage) -> None:
    sent, back = stage.scratch / "sent", stage.scratch / "back"
    sent.write_bytes(bytes(range(256)) * 32 * 1024)
    for option in VERSIONS:
        for coding in ((), ("-H", "transfer-encoding: chunked")):
            curl(option, *coding, "--data-binary", f"@{sent}", "-o", back, f"{stage.url}/echo")
            expect(f"{option} {coding}", back.read_bytes() == sent.read_bytes(), True)


@check("curl that waits for 100 Continue is told to go on, or is answered without its body where that is not wanted")
def continues(stage: Stage) -> None:
    wait = ("-H", "expect: 100-continue", "--expect100-timeout", "9", "--max-time", "5")
    ask = (*wait, "-d", "body", "-w", " %{http_code} %{size_upload}")
    expect("the echo", curl(*ask, f"{stage.url}/echo"), "body 200 4")
    expect("the refusal", curl(*ask, f"{stage.url}/unwanted"), " 417 0")


@check("curl is shown the origin's 103 Early Hints before there is an answer, over both versions")
def is_shown_hints(stage: Stage) -> None:
    back = stage.scratch / "back"
    for option, version in zip(VERSIONS, ("HTTP/1.1", "HTTP/2")):
        # It tells of fields at once where it is verbose, and with the body otherwise.
        asking = stage.start("curl", "-sv", option, "-o", back, f"{stage.url}/hints", stderr=subprocess.PIPE)
        assert asking.stderr
        told = [line.strip() for line in iter(asking.stderr.readline, "< x-hint: yes\n") if line.startswith("< ")]
        expect(option, told[0].startswith(f"< {version} 103"), True)
        expect(option, "< link: </style.css>; rel=preload; as=style" in told, True)
        curl(f"{stage.url}/more")
        expect(option, f"< {version} 200" in asking.stderr.read(), True)
        expect(option, (asking.wait(10), back.read_text()), (0, "after the hint\n"))


@check("curl's HEAD has an answer without a body")
def asks_for_heads(stage: Stage) -> None:
    for option in VERSIONS:
        status, _, body = shown(option, "--head", f"{stage.url}/plain")
        expect(option, (status.split()[1], body), ("200", ""))


@check("curl is refused with 429, Retry-After, the fields of the quota and the problem")
def is_refused(stage: Stage) -> None:
    for option in VERSIONS:
        ask = (option, "-H", f"x-name: {stage.name()}", f"{stage.url}/limited/plain")
        for left in (1, 0):
            _, fields, _ = shown(*ask)
            quota = next(field for field in fields if field.startswith("ratelimit:"))
            expect("the quota", quota.startswith(f'ratelimit: "per-name";r={left};t='), True)
        status, fields, body = shown(*ask)
        expect("the status", status.split()[1], "429")
        expect("the problem", '"violated-policies":["per-name"]' in body, True)
        names = {field.partition(":")[0] for field in fields}
        expect("its fields", names >= {"retry-after", "ratelimit", "ratelimit-policy"}, True)


@check("curl is told by 502 and 504 what went wrong, and can go on")
def is_told_of_failures(stage: Stage) -> None:
    for option in VERSIONS:
        told = curl(option, "-o", "/dev/null", "-w", "%{http_code}", f"{stage.url}/closed/")
        expect("of a closed port", told, "502")
        told = curl(option, "-o", "/dev/null", "-w", "%{http_code}", f"{stage.url}/hang")
        expect("of one that is silent", told, "504")


@check("curl sees that an answer is broken off")
def sees_what_is_broken_off(stage: Stage) -> None:
    for option in VERSIONS:
        told = output("curl", "-sS", option, "-o", "/dev/null", f"{stage.url}/broken", codes=(18, 56, 92))
        expect("it complains", told.startswith("curl: ("), True)


@check("curl's PUT, DELETE, PATCH and OPTIONS arrive as what they are")
def methods_arrive(stage: Stage) -> None:
    for option in VERSIONS:
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
            told = curl(option, "-X", method, f"{stage.url}/request?a=b")
            expect(method, f'"method":"{method}","url":"/request?a=b"' in told, True)
