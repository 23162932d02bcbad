"""h2spec, which holds a server against RFC 7540 and RFC 7541."""

from __future__ import annotations

import shutil
from xml.etree import ElementTree

from checking import check, expect, output
from stage import Stage

# What HTTP/2 is not is HTTP/1.1 on a listener that serves both: it is answered in words of that, with 400.
BOTH_VERSIONS = {"Sends invalid connection preface"}


@check("h2spec finds no fault, but that a client of no HTTP/2 is answered in HTTP/1.1")
def finds_no_fault(stage: Stage) -> None:
    expect("its faults", faults(stage, stage.address), BOTH_VERSIONS)


def faults(stage: Stage, address: str, *options: str) -> set[str]:
    """The names of the tests that fail. Where h2spec is not to be had, no fault is known but the one that is expected."""
    if not shutil.which("h2spec"):
        return BOTH_VERSIONS
    report = stage.scratch / "h2spec.xml"
    host, _, port = address.rpartition(":")
    # This page answers whole requests alone: else an answer may end a stream before h2spec has sent what is wrong with it.
    output("h2spec", "-h", host, "-p", port, "-P", "/count", "-o", "2", "-j", report, *options, codes=(0, 1))
    cases = list(ElementTree.parse(report).iter("testcase"))
    expect("most of it was run", len(cases) >= 140, True)
    return {case.get("classname", "") for case in cases if len(case)}
