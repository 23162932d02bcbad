"""The row with API keys, a condition on a field, and a changed path."""

from __future__ import annotations

from contestant import Contestant
from gateways import nginx, tidegate
from row import AtMost, Row
from rows import NGINX, TIDEGATE
from stage import Stage

KEYS = 1_000
FIELDS = (("X-Api-Key", "key-000500"), ("X-Env", "staging"), ("Cookie", "session=0123456789"))


def upstream_and_keys(stage: Stage) -> int:
    """Writes the keys for both gateways."""
    names = [f"{number:06}" for number in range(KEYS)]
    (stage.folder / "keys.yaml").write_text("".join(f"key-{name}: {{ id: user-{name} }}\n" for name in names))
    (stage.folder / "nginx_keys.conf").write_text("".join(f"key-{name} user-{name};\n" for name in names))
    return stage.upstream


ROW = Row(
    name="identity",
    title="API keys, a condition on a field, and a changed path",
    about=f"The gateway requires one of {KEYS:,} API keys and a value of `X-Env`, replaces the start of the path, sets "
    "`X-User` to the name of the key's owner, removes `Cookie`, and adds a field to the response.",
    contestants=[
        Contestant(
            "tidegate", TIDEGATE, "tidegate_orders.yaml", tidegate("tidegate_orders.yaml"), target="/orders/1", fields=FIELDS
        ),
        Contestant("nginx", NGINX, "nginx_orders.conf", nginx("nginx_orders.conf"), target="/orders/1", fields=FIELDS),
    ],
    goals=[AtMost("tidegate", "nginx", 1.10)],
    upstream=upstream_and_keys,
)
