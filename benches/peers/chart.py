"""Draws a section as an SVG: a bar for the median of each contestant, and a line from its minimum to its maximum.

The colours are those of the other pictures in docs/, for light and dark pages.
"""

from __future__ import annotations

from html import escape

from section import Bar, Section

WIDTH = 860
LEFT, RIGHT = 206.0, 770.0
TOP, STEP, THICK = 52.0, 34.0, 16.0

STYLE = """\
text{font:12px system-ui,sans-serif}.row{text-anchor:end}.tick{text-anchor:middle}.head{font-size:14px;font-weight:600}
.value{font-weight:600}.part{opacity:.55}.spread{fill:none;stroke-width:1.4}
.ground{fill:#fff}text{fill:#6e7781}.head,.value{fill:#24292f}.own{fill:#0969da}.peer{fill:#8c959f}
.rule{stroke:#d8dee4}.spread{stroke:#24292f}
@media(prefers-color-scheme:dark){.ground{fill:#0d1117}text{fill:#9198a1}.head,.value{fill:#e6edf3}.own{fill:#58a6ff}
.peer{fill:#6e7681}.rule{stroke:#30363d}.spread{stroke:#e6edf3}}"""


def draw(section: Section) -> str:
    """Draws the chart of a section, without failed contestants."""
    longest = max((bar.spread.most for bar in section.bars), default=1.0)
    step = step_of(longest)
    zero = TOP + STEP * len(section.bars)
    height = zero + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        'aria-labelledby="title desc">',
        f'<title id="title">{escape(section.title)}: {escape(section.unit)}</title>',
        f'<desc id="desc">{escape(describe(section))}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height:.0f}" rx="6"/>',
        f'<text class="head" x="14" y="24">{escape(section.title)}</text>',
        f'<text x="{WIDTH - 14}" y="24" class="row">{escape(section.unit + legend(section.bars))}</text>',
        *ticks(longest, step, zero),
    ]
    for index, bar in enumerate(section.bars):
        lines += row(bar, number(bar.spread.median, section.bars), TOP + STEP * index, longest)
    return "\n".join([*lines, "</svg>"]) + "\n"


def legend(bars: list[Bar]) -> str:
    """Names the paler parts of the bars, if there are any."""
    behind = list(dict.fromkeys(name for bar in bars for name in list(bar.parts)[1:]))
    return f"; paler: {' and '.join(behind)}" if behind else ""


def describe(section: Section) -> str:
    """Describes the chart in text."""
    each = [f"{bar.name} {number(bar.spread.median, section.bars)}" for bar in section.bars]
    return f"Medians: {', '.join(each)}."


def step_of(longest: float) -> float:
    """Returns the distance of the ticks: 0.2, 0.5, 1 or 2 times a power of ten, for up to eight ticks."""
    power = 1.0
    while power * 10 <= longest:
        power *= 10
    while power > longest:
        power /= 10
    return next(power * times for times in (0.2, 0.5, 1, 2) if longest / (power * times) <= 8)


def x(value: float, longest: float) -> float:
    return LEFT + (RIGHT - LEFT) * value / longest


def ticks(longest: float, step: float, zero: float) -> list[str]:
    lines = []
    for count in range(int(longest / step) + 1):
        at = x(count * step, longest)
        label = f"{count * step:,.10g}"
        lines.append(f'<path class="rule" d="M{at:.1f} {TOP - 8}V{zero}"/>')
        lines.append(f'<text class="tick" x="{at:.1f}" y="{zero + 18}">{label}</text>')
    return lines


def row(bar: Bar, label: str, top: float, longest: float) -> list[str]:
    kind = "own" if bar.name.startswith("tidegate") else "peer"
    middle = top + THICK / 2
    least, most = x(bar.spread.least, longest), x(bar.spread.most, longest)
    lines = [f'<text class="row" x="{LEFT - 10}" y="{middle + 4}">{escape(bar.name)}</text>']
    lines += pieces(bar, kind, top, longest)
    ends = "".join(f"M{end:.1f} {middle - 4}v8" for end in (least, most))
    lines.append(f'<path class="spread" d="M{least:.1f} {middle}H{most:.1f}{ends}"/>')
    lines.append(f'<text class="value" x="{most + 8:.1f}" y="{middle + 4}">{label}</text>')
    return lines


def pieces(bar: Bar, kind: str, top: float, longest: float) -> list[str]:
    """Draws a bar in one piece per process, in proportion to their medians."""
    parts = list(bar.parts.items()) or [("", bar.spread.median)]
    whole, begin, lines = sum(cost for _, cost in parts), 0.0, []
    for index, (name, cost) in enumerate(parts):
        end = begin + bar.spread.median * cost / whole
        left, right = x(begin, longest), x(end, longest)
        title = f"<title>{escape(name)}: {cost:,.1f}</title>" if len(parts) > 1 else ""
        shade = f"{kind} part" if index else kind
        size = f'x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{THICK}"'
        lines.append(f'<rect class="{shade}" {size}>{title}</rect>' if title else f'<rect class="{shade}" {size}/>')
        begin = end
    return lines


def number(value: float, bars: list[Bar]) -> str:
    return f"{value:,.{0 if max(bar.spread.most for bar in bars) >= 1000 else 1}f}"
