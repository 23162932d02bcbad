"""Draws the permits in the fullest second: a group of bars for each product, and the limit as a line.

The colours are those of the other pictures in docs/, for light and dark pages.
"""

from __future__ import annotations

from html import escape

from product import SECOND
from scenarios import INSTANCES, Result

WIDTH, LEFT, RIGHT, TOP = 860, 176.0, 800.0, 76.0
THICK, GAP = 11.0, 12.0
KINDS = [*(f"{number} instance{'s' * (number > 1)}" for number in INSTANCES), "a window's end", "failover"]

STYLE = """\
text{font:12px system-ui,sans-serif}.row{text-anchor:end}.tick{text-anchor:middle}.head{font-size:14px;font-weight:600}
.value{font-size:10px}.ground{fill:#fff}text{fill:#6e7781}.head,.own{fill:#24292f}.own{font-weight:600}.rule{stroke:#d8dee4}
.limit{stroke:#cf222e;stroke-width:1.5}.k0{fill:#0969da}.k1{fill:#54a3ff}.k2{fill:#a5d0ff}.k3{fill:#bf8700}.k4{fill:#8250df}
@media(prefers-color-scheme:dark){.ground{fill:#0d1117}text{fill:#9198a1}.head,.own{fill:#e6edf3}.rule{stroke:#30363d}
.limit{stroke:#f85149}.k0{fill:#1f6feb}.k1{fill:#58a6ff}.k2{fill:#a5d6ff}.k3{fill:#d29922}.k4{fill:#a371f7}}"""


def values(result: Result) -> list[int | None]:
    return [*(result.fullest.get(number) for number in INSTANCES), result.at_end, result.failover]


def draw(results: list[Result]) -> str:
    longest = max([value for result in results for value in values(result) if value is not None], default=SECOND.rate)
    heights = [THICK * len([one for one in values(result) if one is not None]) + GAP for result in results]
    zero = TOP + sum(heights)
    title = f"Permits in the fullest second of a limit of {SECOND.rate} per second"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {zero + 30:.0f}" role="img" aria-labelledby="title desc">',
        f'<title id="title">{title}</title>',
        f'<desc id="desc">{escape(describe(results))}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{zero + 30:.0f}" rx="6"/>',
        f'<text class="head" x="14" y="24">{title}</text>',
        *legend(),
        f'<text x="{WIDTH - 14}" y="47" class="row">* simulated</text>',
        *ticks(longest, zero),
    ]
    top = TOP
    for result, height in zip(results, heights):
        lines += group(result, top, longest)
        top += height
    limit = x(SECOND.rate, longest)
    lines.append(f'<path class="limit" d="M{limit:.1f} {TOP - 8}V{zero:.0f}"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def describe(results: list[Result]) -> str:
    """Describes the picture in text."""
    each = (", ".join(f"{kind} {value}" for kind, value in zip(KINDS, values(one)) if value is not None) for one in results)
    return ". ".join(f"{result.product.name}: {text}" for result, text in zip(results, each)) + "."


def legend() -> list[str]:
    lines, left = [], 14.0
    for number, kind in enumerate(KINDS):
        lines.append(f'<rect class="k{number}" x="{left:.0f}" y="38" width="10" height="10" rx="2"/>')
        lines.append(f'<text x="{left + 15:.0f}" y="47">{escape(kind)}</text>')
        left += 36 + 7 * len(kind)
    return lines


def x(value: float, longest: float) -> float:
    return LEFT + (RIGHT - LEFT) * value / longest


def ticks(longest: float, zero: float) -> list[str]:
    lines = []
    for value in range(0, int(longest) + 1, 100):
        at = x(value, longest)
        lines.append(f'<path class="rule" d="M{at:.1f} {TOP - 8}V{zero:.0f}"/>')
        lines.append(f'<text class="tick" x="{at:.1f}" y="{zero + 18:.0f}">{value}</text>')
    return lines


def group(result: Result, top: float, longest: float) -> list[str]:
    bars = [(number, value) for number, value in enumerate(values(result)) if value is not None]
    middle = top + THICK * len(bars) / 2 + 4
    name = result.product.name if result.product.start else f"{result.product.name} *"
    lines = [f'<text class="row{" own" if result.product.ours else ""}" x="{LEFT - 10}" y="{middle:.1f}">{escape(name)}</text>']
    for row, (number, value) in enumerate(bars):
        at, end = top + THICK * row, x(value, longest)
        kind = KINDS[number]
        lines.append(
            f'<rect class="k{number}" x="{LEFT}" y="{at:.1f}" width="{end - LEFT:.1f}" height="{THICK - 1}">'
            f"<title>{escape(kind)}: {value}</title></rect>"
        )
        lines.append(f'<text class="value" x="{end + 4:.1f}" y="{at + THICK - 2:.1f}">{value}</text>')
    return lines
