"""A small calibration plot as SVG text."""

SIZE, MARGIN = 320, 40
COLOURS = {"choice": "#1f6f8b", "score": "#c0562f", "noul": "#5b4a9e"}


def calibration_svg(curves):
    """One line for each name: points are (mean chance, share right, size) of a bin."""
    whole = SIZE + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {whole}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{whole}" height="{whole}" fill="#fff"/>',
        f'<path d="M{_at(0, 0)} L{_at(1, 1)}" stroke="#999" stroke-dasharray="4 4"/>',
        f'<path d="M{_at(0, 1)} L{_at(0, 0)} L{_at(1, 0)}" stroke="#333" fill="none"/>',
    ]
    for value in (0, 0.25, 0.5, 0.75, 1):
        x, y = _xy(value, 0)
        parts.append(f'<text x="{x}" y="{y + 16}" text-anchor="middle">{value:g}</text>')
        x, y = _xy(0, value)
        parts.append(f'<text x="{x - 6}" y="{y + 4}" text-anchor="end">{value:g}</text>')
    for index, (name, points) in enumerate(curves.items()):
        colour = COLOURS[name]
        line = " L".join(_at(mean, hits) for mean, hits, _ in points)
        parts.append(f'<path d="M{line}" stroke="{colour}" fill="none" stroke-width="2"/>')
        for mean, hits, _ in points:
            x, y = _xy(mean, hits)
            parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>')
        x, y = _xy(0.05, 0.95 - 0.06 * index)
        parts.append(f'<text x="{x}" y="{y}" fill="{colour}">{name}</text>')
    x, y = _xy(0.5, 0)
    parts.append(f'<text x="{x}" y="{y + 34}" text-anchor="middle">chance given</text></svg>')
    return "\n".join(parts) + "\n"


def _xy(x, y):
    return round(MARGIN + x * SIZE, 1), round(MARGIN + (1 - y) * SIZE, 1)


def _at(x, y):
    return "{} {}".format(*_xy(x, y))
