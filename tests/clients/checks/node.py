"""node's client of HTTP/2; its checks are in ../node_http2.mjs."""

from __future__ import annotations

from checking import check, run_script
from stage import Stage


@check("node's checks of HTTP/2 in clear end")
def in_clear(stage: Stage) -> None:
    run_script(stage, "node_http2.mjs", stage.url, stage.name())
