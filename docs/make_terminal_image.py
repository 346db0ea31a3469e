#!/usr/bin/env python3
"""Draws a terminal's text as an SVG image: make_terminal_image.py < TEXT > IMAGE.svg

`examples/demo/run | docs/make_terminal_image.py > docs/demo.svg` makes the README's picture.
"""
import html
import sys

FONT_SIZE = 13
LINE_HEIGHT = 17
CHARACTER_WIDTH = 7.83
MARGIN = 14
COLUMNS_MAX = 132


def main():
    lines = [line.rstrip("\n")[:COLUMNS_MAX] for line in sys.stdin]
    width = 2 * MARGIN + CHARACTER_WIDTH * max(map(len, lines), default=0)
    height = 2 * MARGIN + LINE_HEIGHT * len(lines)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}">')
    print('<rect width="100%" height="100%" rx="6" fill="#1e2227"/>')
    print(f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{FONT_SIZE}" fill="#d7dae0">')
    for number, line in enumerate(lines):
        y = MARGIN + LINE_HEIGHT * (number + 0.8)
        print(f'<text x="{MARGIN}" y="{y:.1f}" xml:space="preserve">{html.escape(line)}</text>')
    print("</g></svg>")


main()
