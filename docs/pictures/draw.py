#!/usr/bin/env python3
"""Draws the pictures of docs/ as SVG. `make pictures` runs it; it needs Python and nothing else.

    draw.py [DIRECTORY]    write DIRECTORY/pictures/*.svg and DIRECTORY/bench/*.svg, by default into docs/

- life, queue, failover, paused, quorum: diagrams
- top: the screens in top.txt, which `dlock top` has shown. To renew them, copy two screens of a busy server
- bench/*: plots of bench/results.csv

Each picture is 420 units wide and stacks its parts, so that its text is legible on a phone. It follows the reader's
colour scheme, and has a background of its own because not every page that shows it does the same.
"""

import csv
import html
import math
import pathlib
import statistics
import sys

DOCS = pathlib.Path(__file__).resolve().parent.parent
STYLE = """
  text { font: 14px system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #1f2430 }
  .small { font-size: 13px } .bold { font-weight: 600 } .soft { fill: #555e6c } .light { fill: #fff }
  .screen { font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace }
  .ground { fill: #fafbfc; stroke: #d5d9e0 } .box { fill: #fff; stroke: #8791a1; stroke-width: 1.5 }
  .arrow { fill: none; stroke: #5b6472; stroke-width: 1.8; marker-end: url(#tip) } .tip { fill: #5b6472 }
  .axis { fill: none; stroke: #b3bac5 } .range { fill: none; stroke: #1f2430; stroke-width: 1.3 }
  .dashed { stroke-dasharray: 5 4 }
  .alice { fill: #2563c9 } .bob { fill: #b45309 } .carol { fill: #6d43bd } .dave { fill: #0f766e }
  .server { fill: #5b6472 } .grace { fill: #cfd5de } .ours { fill: #2563c9 } .theirs { fill: #a7afbb }
  .bad { fill: #c81e3a } .good { fill: #15803d } .cross { fill: none; stroke: #c81e3a; stroke-width: 3 }
  .overlap { fill: #c81e3a; fill-opacity: .13; stroke: #c81e3a; stroke-dasharray: 4 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e8ef } .soft { fill: #a9b3c1 } .light { fill: #fff }
    .ground { fill: #171b22; stroke: #343b47 } .box { fill: #212732; stroke: #6b7686 }
    .arrow { stroke: #a9b3c1 } .tip { fill: #a9b3c1 } .axis { stroke: #4a5260 } .range { stroke: #e4e8ef }
    .grace { fill: #414a58 } .ours { fill: #3f7ce0 } .theirs { fill: #5f6978 }
    .bad { fill: #f5788d } .good { fill: #4cc07a } .cross { stroke: #f5788d }
    .overlap { fill: #f5788d; fill-opacity: .18; stroke: #f5788d }
  }"""
# For top: which of the two screens is shown.
NARROW = """
  .narrow { display: none }
  @media (max-width: 600px) { .wide { display: none } .narrow { display: inline } }"""
TIP = """
  <marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">\
<path class="tip" d="M0 0 L10 5 L0 10 z"/></marker>"""


class Picture:
    """Shapes and text, whose styles are the classes above."""

    def __init__(self, title, height, width=420, style=""):
        self.title, self.height, self.width, self.style, self.parts = title, height, width, style, []
        self.box(1, 1, width - 2, height - 2, "ground", round=12)

    def add(self, part):
        self.parts.append(part)

    def text(self, x, y, words, style="", anchor="start"):
        words = html.escape(words, quote=False)
        self.add(f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{words}</text>')

    def box(self, x, y, width, height, style, round=8):
        self.add(f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round:g}"/>')

    def pill(self, x, y, width, words, style, text="light bold", height=30):
        self.box(x, y, width, height, style, round=height / 2)
        self.text(x + width / 2, y + height / 2 + 5, words, text, "middle")

    def path(self, style, d):
        self.add(f'<path class="{style}" d="{d}"/>')

    def cross(self, x, y, size=7):
        self.path("cross", f"M{x - size} {y - size} l{2 * size} {2 * size} m0 {-2 * size} l{-2 * size} {2 * size}")

    def svg(self):
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            f"  <title>{html.escape(self.title)}</title>",
            f"  <style>{STYLE}{self.style}\n  </style>{TIP}",
            *(f"  {part}" for part in self.parts),
            "</svg>\n",
        ])


def life():
    p = Picture("The life of a lock: free, held by alice, held by bob", 408)
    p.box(24, 24, 190, 58, "box")
    p.text(119, 49, "free", "bold", "middle")
    p.text(119, 69, "the key does not exist", "small soft", "middle")
    p.path("arrow", "M119 82 V138")
    p.text(131, 115, "alice: ACQUIRE", "bold")
    for y, name, fence in (140, "alice", 7), (314, "bob", 8):
        p.box(24, y, 190, 72, "box")
        p.pill(44, y + 10, 150, f"held by {name}", name)
        p.text(119, y + 59, f"fence {fence}, the lease runs", "small", "middle")
    p.path("arrow", "M119 212 V312")
    p.text(131, 236, "last RELEASE, or", "bold")
    p.text(131, 255, "the lease expires, or", "bold")
    p.text(131, 274, "dlock break", "bold")
    p.text(131, 294, "if bob waits: to him, in the same step", "small soft")
    p.path("arrow", "M214 162 H300 Q312 162 312 150 V66 Q312 54 300 54 H217")
    p.path("arrow", "M214 350 H384 Q396 350 396 338 V54 Q396 42 384 42 H217")
    for y in 182, 370:
        p.text(232, y, "if nobody waits", "small soft")
    return p


def queue():
    p = Picture("The queue of a lock before and after a release", 318)
    for y, title, names, fence in (
        (24, "before", ["alice", "bob", "carol", "dave"], 7),
        (196, "after", ["bob", "carol", "dave"], 8),
    ):
        p.text(24, y + 12, title, "bold")
        p.box(24, y + 24, 116, 74, "box")
        p.pill(36, y + 34, 92, names[0], names[0])
        p.text(82, y + 84, f"holds, fence {fence}", "small", "middle")
        for place, name in enumerate(names[1:]):
            x = 166 + 80 * place
            p.path("arrow", f"M{x} {y + 49} h-24" if place == 0 else f"M{x} {y + 49} h-16")
            p.pill(x, y + 34, 64, name, name)
    p.text(166, 108, "waiters, first come, first served", "small soft")
    p.path("arrow", "M82 122 V218")
    p.text(96, 152, "alice: RELEASE", "bold")
    p.text(96, 172, "frees the lock and grants it to bob", "small soft")
    p.text(96, 190, "in one step of the server", "small soft")
    p.text(166, 280, "keep their places and sleep on:", "small good bold")
    p.text(166, 298, "no thundering herd", "small good bold")
    return p


def failover():
    p = Picture("A failover without and with a grace period", 452)

    def lanes(y, title):
        p.text(24, y, title, "bold")
        p.pill(24, y + 54, 74, "primary", "server")
        p.cross(111, y + 69)
        return y + 14, y + 54, y + 94

    alice, server, bob = lanes(34, "Without a grace period")
    p.box(196, alice - 5, 52, bob - alice + 40, "overlap", round=5)
    p.pill(48, alice, 200, "alice holds the lock", "alice")
    p.pill(150, server, 246, "new primary, lacks her grant", "server")
    p.pill(196, bob, 200, "bob holds the lock", "bob")
    p.text(111, server + 47, "fails", "small soft", "middle")
    p.text(222, bob + 53, "two holders", "bad bold", "middle")
    p.path("axis", "M24 200 H396")

    alice, server, bob = lanes(232, "With a grace period")
    p.pill(48, alice, 200, "alice holds the lock", "alice")
    p.text(258, alice + 12, "stops herself at", "small bold")
    p.text(258, alice + 29, "her deadline", "small bold")
    p.path("axis", f"M248 {alice + 15} V{bob + 46} M314 {bob + 15} V{bob + 46} M248 {bob + 42} H314")
    p.pill(150, server, 160, "grace: no grants", "grace", "bold")
    p.pill(314, server, 82, "grants", "server")
    p.text(111, server + 47, "fails", "small soft", "middle")
    p.path("axis dashed", f"M150 {bob + 15} H312")
    p.text(156, bob + 10, "bob waits", "small soft")
    p.pill(314, bob, 82, "bob", "bob")
    p.text(281, bob + 62, "the price: bob waits", "small bold", "middle")
    p.text(281, bob + 79, "for longer than needed", "small bold", "middle")
    p.path("arrow", f"M24 {bob + 100} H396")
    p.text(24, bob + 93, "time", "small soft")
    return p

def paused():
    p = Picture("A holder that was paused writes late: what three stores do", 526)
    p.text(24, 34, "alice is paused for longer than her lease", "bold")
    p.pill(24, 50, 146, "alice: fence 33", "alice")
    p.path("axis dashed", "M96 92 H336")
    p.text(206, 87, "paused", "small soft", "middle")
    p.text(338, 70, "wakes", "small soft", "middle")
    p.path("axis dashed", "M338 76 V166")
    p.pill(176, 106, 220, "bob: fence 34", "bob")
    stores = [
        ("A plain store", "bob's data is", "overwritten", "bad"),
        ("A store that compares", "33 is rejected:", "smaller than 34", "good"),
        ("Redis, with GUARD", "33 is rejected:", "NOTOWNER", "good"),
    ]
    for place, (title, *_) in enumerate(stores):
        p.box(24, 166 + 96 * place, 372, 86, "box")
    p.path("axis dashed", f"M238 136 V{166 + 96 * len(stores)} M338 166 V{166 + 96 * len(stores)}")
    for place, (title, first, second, style) in enumerate(stores):
        y = 166 + 96 * place
        p.text(36, y + 22, title, "bold")
        p.text(36, y + 48, first, f"small bold {style}")
        p.text(36, y + 66, second, f"small bold {style}")
        p.pill(198, y + 36, 80, "write 34", "bob")
        p.pill(298, y + 36, 80, "write 33", "alice")
        if style == "good":
            p.cross(338, y + 17)
    p.text(24, 476, "GUARD asks the lock itself, so it rejects alice even if", "small")
    p.text(24, 494, "bob has written nothing yet. NOTHELD: the lock is free.", "small")
    p.text(24, 512, "STALE: she holds it again, under a larger fence.", "small")
    return p


def quorum():
    p = Picture("A lock on five servers of which two are down", 638)
    left = [24 + 76.5 * place for place in range(5)]

    def servers(y, height):
        for x, name in zip(left, "ABCDE"):
            p.box(x, y, 66, height, "box" if name < "D" else "box dashed")
            p.text(x + 33, y + 20, name, "bold" if name < "D" else "soft", "middle")
            if name > "C":
                p.cross(x + 33, y + 38)
                p.text(x + 33, y + 64, "down", "small soft", "middle")

    p.text(24, 34, "1. alice asks all servers at once", "bold")
    p.pill(150, 46, 120, "alice", "alice")
    for x in left:
        p.path("arrow", f"M210 76 L{x + 33} 108")
    servers(110, 78)
    for x in left[:3]:
        p.pill(x + 4, 138, 58, "alice", "alice", height=26)
        p.text(x + 33, 180, "41", "small bold", "middle")
    p.text(24, 208, "Three of five grant fence 41, a majority: she holds it.", "small")

    p.text(24, 246, "2. bob waits on all servers", "bold")
    servers(258, 102)
    for x in left[:3]:
        p.pill(x + 4, 286, 58, "alice", "alice", height=26)
        p.path("arrow", f"M{x + 33} 330 V315")
        p.pill(x + 4, 330, 58, "bob", "bob", height=26)
    p.text(24, 380, "A short lock on A, the doorway, lets one client at a time", "small")
    p.text(24, 398, "join the queues: they have the same order everywhere.", "small")

    p.text(24, 438, "3. alice releases, and each server grants to bob", "bold")
    servers(450, 94)
    for x, fence in zip(left, (42, 42, 44)):
        p.pill(x + 4, 478, 58, "bob", "bob", height=26)
        p.text(x + 33, 527, f"{fence} → 44" if fence < 44 else f"{fence}", "small bold", "middle")
    p.text(24, 566, "If the fences differ, the client raises the smaller ones.", "small")
    p.text(24, 584, "bob has the lock when a majority holds exactly fence 44.", "small")
    p.text(24, 602, "Any two majorities share a server, so the fence of every", "small")
    p.text(24, 620, "later holder is larger.", "small")
    return p


def top():
    """The wide screen, and where the picture is narrow, the narrow one."""
    _, *wide = (DOCS / "pictures" / "top.txt").read_text(encoding="utf-8").splitlines()
    wide, narrow = wide[: wide.index("#")], wide[wide.index("#") + 1 :]
    width = 8.4 * 114 + 20
    p = Picture("dlock top, on a server with nine locks", 18 * 17 + 20, math.ceil(width), NARROW)
    for name, lines, scale in ("wide", wide, 1), ("narrow", narrow, width / (8.4 * 50 + 20)):
        p.add(f'<g class="{name}" transform="scale({scale:.4g})">')
        for row, line in enumerate(lines):
            style = "screen bold" if row == 0 or line.startswith("LOCK ") else "screen"
            if line:
                length = f'xml:space="preserve" textLength="{8.4 * len(line):.1f}"'
                p.add(f'<text class="{style}" x="10" y="{18 * row + 24}" {length}>{html.escape(line)}</text>')
        p.add("</g>")
    return p


# Plots.


def results():
    """The values of all rounds, by workload, setting, implementation, clients and figure."""
    values = {}
    with open(DOCS / "bench" / "results.csv", encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            key = row["workload"], row["setting"], row["implementation"], int(row["clients"]), row["figure"]
            values.setdefault(key, []).append(float(row["value"]))
    return values


def bars(title, unit, rows, logarithmic=False):
    """Names above horizontal bars: medians, and lines from the lowest to the highest round. DLOCK is blue."""
    bottom = 68 + 38 * len(rows)
    p = Picture(f"{title}, {unit}", bottom + (54 if logarithmic else 34))
    p.text(24, 34, title, "bold")
    p.text(24, 54, unit, "small soft")
    most = max(max(values) for _, values, _ in rows)

    def x(value):
        part = math.log10(max(value, 1)) / math.log10(most) if logarithmic else value / most
        return round(24 + 306 * part, 1)

    for power in [10**exponent for exponent in range(9) if 10**exponent <= most] if logarithmic else []:
        p.path("axis", f"M{x(power)} 86 " + "v16 m0 22 " * len(rows))
        p.text(x(power), bottom + 16, f"{power}", "small soft", "middle")
    for row, (name, values, is_ours) in enumerate(rows):
        y, median = 68 + 38 * row, statistics.median(values)
        p.text(24, y + 14, name, "small bold" if is_ours else "small")
        p.box(24, y + 20, x(median) - 24, 12, "ours" if is_ours else "theirs", round=2)
        p.path("range", f"M{x(min(values))} {y + 26} H{x(max(values))}")
        p.text(x(max(values)) + 7, y + 31, f"{median:.0f}" if median >= 100 else f"{median:#.3g}", "small bold")
    p.text(24, p.height - 12, "Medians; the lines span the lowest and the highest round.", "small soft")
    return p


def plots():
    values = results()

    def select(workload, setting, clients, figure):
        for (a, b, implementation, c, d), of_rounds in values.items():
            if (a, b, c, d) == (workload, setting, clients, figure):
                yield implementation, of_rounds, implementation.split()[-1] == "dlock"

    pairs = list(select("pair", "none", 1, "CPU, pair"))
    yield "cpu", bars("Server CPU per lock, released at once", "µs; less is better", pairs)
    for workers in 8, 64:
        peers = select("peers", f"{workers} workers, 1 ms", workers, "wait max")
        peers = sorted(peers, key=lambda row: statistics.median(row[1]))
        title, unit = f"{workers} workers contend for a lock: longest wait", "ms on a logarithmic scale; less is better"
        yield f"peers-{workers}", bars(title, unit, peers, logarithmic=True)


def main():
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    for picture in life, queue, failover, paused, quorum, top:
        write(target / "pictures" / f"{picture.__name__}.svg", picture())
    for name, plot in plots():
        write(target / "bench" / f"{name}.svg", plot)


def write(file, picture):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(picture.svg(), encoding="utf-8")


main()
