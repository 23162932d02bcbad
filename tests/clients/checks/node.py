"""The HTTP/1.1 and HTTP/2 clients of Node.js. The checks are in ../node_http2.mjs and ../node_informational.mjs."""

from __future__ import annotations

from checking import check, run_script
from harness import Harness


@check("the HTTP/2 checks of Node.js in plaintext finish")
def plaintext(harness: Harness) -> None:
    run_script(harness, "node_http2.mjs", harness.url, harness.name())


@check("the checks of informational responses of Node.js finish")
def informational_responses(harness: Harness) -> None:
    for version in (1, 2):
        run_script(harness, "node_informational.mjs", harness.url, version)
        run_script(harness, "node_informational.mjs", harness.tls_url, version, harness.certificates.ca)
