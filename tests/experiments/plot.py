"""Line plots as SVG files."""

import html
import math

WIDTH, LEFT, RIGHT, TOP, PLOT_HEIGHT, BOTTOM = 640, 62, 16, 34, 250, 44
LEGEND_LINE = 18
LEGEND_COLUMNS = 3
# Of Okabe and Ito (2008), which people with any colour vision tell apart; without yellow, which is too pale on white.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("", "7 5", "2 4")


def nice_step(least):
    power = 10 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def ticks(low, high, count):
    """From tick to tick around low..high."""
    if not high > low:
        high = low + max(abs(low), 1) * 0.1
    step = nice_step((high - low) / count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]


def label(value, step):
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if step >= size / 10 and abs(value) >= size:
            return f"{value / size:.10g}{unit}"
    return f"{value:.{max(0, math.ceil(-math.log10(step) - 1e-9))}f}"


def number(value):
    return f"{value:.1f}".removesuffix(".0")


def draw(title, x_label, y_label, series):
    """`series`: pairs of a name and points (x, y), of which y is None where the line is broken. The text of an SVG file."""
    points = [(x, y) for _, line in series for x, y in line if y is not None]
    x_ticks = ticks(0, max((x for x, _ in points), default=1), 6)
    y_ticks = ticks(min((y for _, y in points), default=0), max((y for _, y in points), default=1), 5)
    lines = math.ceil(len(series) / LEGEND_COLUMNS)
    height = TOP + PLOT_HEIGHT + BOTTOM + LEGEND_LINE * lines + 6
    bottom, width = TOP + PLOT_HEIGHT, WIDTH - LEFT - RIGHT

    def x_of(x):
        return number(LEFT + x / x_ticks[-1] * width)

    def y_of(y):
        return number(bottom - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * PLOT_HEIGHT)

    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
           f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{html.escape(title)}</text>']
    for tick in x_ticks:
        svg.append(f'<path d="M{x_of(tick)} {TOP}V{bottom}" stroke="#ddd"/><text x="{x_of(tick)}" y="{bottom + 16}" '
                   f'text-anchor="middle">{label(tick, x_ticks[1] - x_ticks[0])}</text>')
    for tick in y_ticks:
        svg.append(f'<path d="M{LEFT} {y_of(tick)}h{width}" stroke="#ddd"/><text x="{LEFT - 7}" y="{y_of(tick)}" dy="4" '
                   f'text-anchor="end">{label(tick, y_ticks[1] - y_ticks[0])}</text>')
    svg.append(f'<text x="{LEFT + width / 2:g}" y="{bottom + 34}" text-anchor="middle">{html.escape(x_label)}</text>'
               f'<text transform="translate(14 {TOP + PLOT_HEIGHT / 2:g}) rotate(-90)" text-anchor="middle">'
               f'{html.escape(y_label)}</text>')
    for index, (name, line) in enumerate(series):
        style = f'stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="2" fill="none"'
        if dash := DASHES[index // len(COLOURS) % len(DASHES)]:
            style += f' stroke-dasharray="{dash}"'
        path, pen = [], "M"
        for x, y in line:
            if y is None:
                pen = "M"
                continue
            path.append(f"{pen}{x_of(x)} {y_of(y)}" + ("h0" if pen == "M" else ""))  # h0: a point alone is seen as well
            pen = "L"
        svg.append(f'<path d="{"".join(path)}" {style} stroke-linejoin="round" stroke-linecap="round"/>')
        left = LEFT + index % LEGEND_COLUMNS * (width // LEGEND_COLUMNS)
        top = bottom + BOTTOM + LEGEND_LINE * (index // LEGEND_COLUMNS) + 6
        svg.append(f'<path d="M{left} {top}h24" {style}/><text x="{left + 30}" y="{top + 4}">{html.escape(name)}</text>')
    return "\n".join(svg) + "\n</svg>\n"
