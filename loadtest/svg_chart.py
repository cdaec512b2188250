"""Small charts as SVG: lines and dots over two linear axes, with a legend. Colours come from the page's classes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 20, 30, 40
NUM_TICKS = 5
MAX_POINTS = 1200  # of a series; beyond that every n-th is drawn, and the caption says so


@dataclass(frozen=True)
class Series:
    """Points of one line, or dots; a y of None interrupts a line."""

    name: str
    points: Sequence[tuple[float, float | None]]
    is_dots: bool = False


def chart(title: str, series: Sequence[Series], *, x_label: str, y_label: str) -> str:
    """Return an SVG element; without a single point it says that there is nothing to show."""
    shown = [Series(each.name, thinned(each.points), each.is_dots) for each in series if each.points]
    known = [(x, y) for each in shown for x, y in each.points if y is not None]
    head = (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'<text class="title" x="{LEFT}" y="14">{escape(title)}</text>'
    )
    if not known:
        return f'{head}<text x="{LEFT}" y="{HEIGHT / 2}">no samples</text></svg>'
    frame = Frame(
        min(0.0, min(x for x, _ in known)),
        max(x for x, _ in known),
        0.0,
        max(y for _, y in known) * 1.05 or 1.0,
    )
    return head + _axes(frame, x_label, y_label) + "".join(_draw(frame, *each) for each in enumerate(shown)) + "</svg>"


@dataclass(frozen=True)
class Frame:
    """Ranges of both axes, and where their values lie in the picture."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        span = self.x_high - self.x_low or 1.0
        return LEFT + (value - self.x_low) / span * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        span = self.y_high - self.y_low or 1.0
        return HEIGHT - BOTTOM - (value - self.y_low) / span * (HEIGHT - TOP - BOTTOM)


def thinned(points: Sequence[tuple[float, float | None]]) -> Sequence[tuple[float, float | None]]:
    """Return at most MAX_POINTS of the points, evenly chosen."""
    step = math.ceil(len(points) / MAX_POINTS) or 1
    return points[::step]


def ticks(low: float, high: float) -> list[float]:
    """Return about NUM_TICKS round values within low..high, evenly spaced by 1, 2, 2.5 or 5 times a power of ten."""
    rough = (high - low) / NUM_TICKS or 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [place * step for place in range(first, last + 1)]


def _axes(frame: Frame, x_label: str, y_label: str) -> str:
    parts = []
    for value in ticks(frame.y_low, frame.y_high):
        y = frame.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in ticks(frame.x_low, frame.x_high):
        place = f'x="{frame.x(value):.1f}" y="{HEIGHT - BOTTOM + 16}"'
        parts.append(f'<text class="tick" {place} text-anchor="middle">{value:g}</text>')
    parts.append(f'<text class="tick" x="{WIDTH - RIGHT}" y="{HEIGHT - 6}" text-anchor="end">{escape(x_label)}</text>')
    parts.append(f'<text class="tick" x="{WIDTH - RIGHT}" y="14" text-anchor="end">{escape(y_label)}</text>')
    return "".join(parts)


def _draw(frame: Frame, place: int, series: Series) -> str:
    legend = f'<text class="legend s{place}" x="{LEFT + 130 * place}" y="{HEIGHT - 6}">{escape(series.name)}</text>'
    if series.is_dots:
        dots = "".join(
            f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="2"/>' for x, y in series.points if y is not None
        )
        return f'<g class="dots s{place}">{dots}</g>{legend}'
    path, pen = [], "M"
    for x, y in series.points:
        if y is None:
            pen = "M"
        else:
            path.append(f"{pen}{frame.x(x):.1f} {frame.y(y):.1f}")
            pen = "L"
    return f'<path class="line s{place}" d="{"".join(path)}"/>{legend}'
