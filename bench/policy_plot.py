#!/usr/bin/env python3
"""Draws times of bench/policy_solver and bench/packing against the number of jobs,
as SVG, with what is known of the original Gavel.

    bench/policy_plot.py build/bench/policy_solver.json build/bench/packing.json \\
        docs/measurements/policy_solver.svg
"""
import json
import math
import re
import sys

COLUMNS, WIDTH, HEIGHT, GAP = 3, 280, 210, 50
JOBS, MILLISECONDS = (1.6, 6), (-2, 6)  # powers of ten
PEERS = ("HiGHS", "HiGHS, all pairs")  # of the same size, and not stopped
# policy -> [(jobs, ms)]; docs/measurements/policies.md has the sources.
ORIGINAL = {
    "max_min_fairness_perf": [(60, 6.3)],
    "min_total_duration_perf": [(60, 18.5)],
    "finish_time_fairness_perf": [(60, 81.1)],
    "max_min_fairness_water_filling_perf": [(60, 33.1), (2048, 600e3)],
    "max_sum_throughput_perf": [(60, 5.2)],
    "max_min_fairness_packed": [(60, 140.3), (512, 30e3)],
}


def main():
    *sources, target = sys.argv[1:]
    curves = {}  # policy -> [(jobs, ms, HiGHS ms or 0)]
    for source in sources:
        with open(source, encoding="utf-8") as file:
            for row in json.load(file)["rows"]:
                found = re.fullmatch(r"(\S.*), (\d+) jobs( \(not proved\))?",
                                     row["case"])
                if not found or row["unit"] != "ms":
                    continue
                peer = row["peer_value"] if row["peer"] in PEERS else 0
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
    for power in range(math.ceil(JOBS[0]), JOBS[1] + 1):
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
    lines = (([(p[0], p[1]) for p in points], "#0a58a6", "prices"),
             ([(p[0], p[2]) for p in points if p[2] > 0], "#c23b22", "HiGHS"),
             (ORIGINAL.get(name, []), "#555", "original"))
    for known, colour, label in lines:
        path = [(place(jobs, JOBS, left, WIDTH),
                 HEIGHT - place(ms, MILLISECONDS, 0, HEIGHT) + top)
                for jobs, ms in known]
        if not path:
            continue
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in path)
        if label != "original":  # points of several machines
            out.append(f'<polyline points="{line}" fill="none" '
                       f'stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
                for x, y in path]
        x, y = path[-1]
        at = (f'x="{x + 6:.0f}" y="{y - 4:.0f}"' if label == "original" else
              f'x="{max(x, left + 44):.0f}" y="{y - 7:.0f}" text-anchor="end"')
        out.append(f'<text {at} fill="{colour}">{label}</text>')
    return out


if __name__ == "__main__":
    main()
