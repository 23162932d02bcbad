"""h2spec, which checks a server against RFC 7540 and RFC 7541."""

from __future__ import annotations

import shutil
from xml.etree import ElementTree

from checking import Absent, check, expect, output
from harness import Harness

# A listener with both versions treats an invalid HTTP/2 preface as HTTP/1.1 and responds with 400.
BOTH_VERSIONS = {"Sends invalid connection preface"}


@check("h2spec finds no fault, except that an invalid preface gets an HTTP/1.1 response")
def finds_no_fault(harness: Harness) -> None:
    expect("its faults", faults(harness, harness.address), BOTH_VERSIONS)


def faults(harness: Harness, address: str, *options: str) -> set[str]:
    """Returns the names of failed tests."""
    if not shutil.which("h2spec"):
        raise Absent("h2spec is missing")
    report = harness.scratch / "h2spec.xml"
    host, _, port = address.rpartition(":")
    # This page responds only to complete requests: an earlier response could end a stream before h2spec sent the fault.
    output("h2spec", "-h", host, "-p", port, "-P", "/count", "-o", "2", "-j", report, *options, codes=(0, 1))
    cases = list(ElementTree.parse(report).iter("testcase"))
    expect("most tests ran", len(cases) >= 140, True)
    return {case.get("classname", "") for case in cases if len(case)}
