#!/usr/bin/env python3
"""Draws bench/policy_solver's times against the number of jobs, as SVG.

    bench/policy_plot.py build/bench/policy_solver.json docs/policy_solver.svg
"""
import json
import math
import re
import sys

COLUMNS, WIDTH, HEIGHT, GAP = 3, 280, 210, 50
JOBS, MILLISECONDS = (2, 6), (-2, 6)  # powers of ten


def main():
    source, target = sys.argv[1:3]
    curves = {}  # policy -> [(jobs, ms, HiGHS ms or None)]
    with open(source, encoding="utf-8") as file:
        for row in json.load(file)["rows"]:
            found = re.fullmatch(r"(\S.*), (\d+) jobs( \(not proved\))?",
                                 row["case"])
            if not found or row["unit"] != "ms":
                continue
            peer = row["peer_value"] if row["peer"].startswith("HiGHS") else 0
            if row["peer"].count(","):  # another size, or stopped
                peer = 0
            curves.setdefault(found[1], []).append(
                (int(found[2]), row["value"], peer))
    curves = {name: points for name, points in curves.items() if len(points) > 1}
    rows = math.ceil(len(curves) / COLUMNS)
    width = COLUMNS * (WIDTH + GAP) + GAP
    height = rows * (HEIGHT + GAP) + GAP
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
           f'height="{height}" font-family="sans-serif" font-size="11">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for index, (name, points) in enumerate(curves.items()):
        left = GAP + index % COLUMNS * (WIDTH + GAP)
        top = GAP + index // COLUMNS * (HEIGHT + GAP)
        out += panel(name, points, left, top)
    out.append("</svg>")
    with open(target, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


def place(value, power, low, length):
    return (math.log10(value) - power[0]) / (power[1] - power[0]) * length + low


def panel(name, points, left, top):
    out = [f'<text x="{left}" y="{top - 6}" font-weight="bold">{name}</text>',
           f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" '
           'fill="none" stroke="#999"/>']
    for power in range(JOBS[0], JOBS[1] + 1):
        x = place(10**power, JOBS, left, WIDTH)
        out.append(f'<text x="{x:.0f}" y="{top + HEIGHT + 13}" '
                   f'text-anchor="middle">1e{power}</text>')
    for power in range(MILLISECONDS[0], MILLISECONDS[1] + 1, 2):
        y = HEIGHT - place(10**power, MILLISECONDS, 0, HEIGHT) + top
        out.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y:.0f}" '
                   f'y2="{y:.0f}" stroke="#ddd"/>')
        label = f"1e{power} ms" if left == GAP else f"1e{power}"
        out.append(f'<text x="{left - 3}" y="{y + 4:.0f}" '
                   f'text-anchor="end">{label}</text>')
    for which, colour, label in ((1, "#0a58a6", "prices"),
                                 (2, "#c23b22", "HiGHS")):
        path = [(place(p[0], JOBS, left, WIDTH),
                 HEIGHT - place(p[which], MILLISECONDS, 0, HEIGHT) + top)
                for p in points if p[which] > 0]
        if not path:
            continue
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in path)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" '
                   'stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
                for x, y in path]
        x, y = path[-1]
        out.append(f'<text x="{min(x, left + WIDTH - 34):.0f}" y="{y - 7:.0f}" '
                   f'fill="{colour}" text-anchor="end">{label}</text>')
    return out


if __name__ == "__main__":
    main()
