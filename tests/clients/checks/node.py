"""node's clients of HTTP/1.1 and HTTP/2; their checks are in ../node_http2.mjs and ../node_informed.mjs."""

from __future__ import annotations

from checking import check, run_script
from stage import Stage


@check("node's checks of HTTP/2 in clear end")
def in_clear(stage: Stage) -> None:
    run_script(stage, "node_http2.mjs", stage.url, stage.name())


@check("node's checks of what comes before an answer end")
def is_informed(stage: Stage) -> None:
    for version in (1, 2):
        run_script(stage, "node_informed.mjs", stage.url, version)
        run_script(stage, "node_informed.mjs", stage.tls_url, version, stage.certificates.ca)
