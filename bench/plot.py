"""Draws the plots of docs/bench from its results.csv. `make bench-plots` installs matplotlib and runs this.

Text and axes take the colour of the reader's theme: the two colours INK and FAINT become CSS variables.
"""

import csv
import io
import pathlib
import statistics
from collections import defaultdict

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402 (after the back end is chosen)

DIRECTORY = pathlib.Path(__file__).parent.parent / "docs" / "bench"
INK, FAINT, OURS, THEIRS = "#101010", "#a0a0a1", "#2f6fde", "#8a8a8b"
STYLE = """<style>
:root { --ink: #222; --faint: #999; }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --faint: #777; } }
</style>"""

plt.rcParams.update({
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 12, "svg.hashsalt": "dlock",
    "text.color": INK, "axes.edgecolor": FAINT, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "axes.spines.top": False, "axes.spines.right": False,
})


def read():
    """The values of all rounds, by workload, setting, implementation, clients and figure."""
    values = defaultdict(list)
    lines = (line for line in open(DIRECTORY / "results.csv", encoding="utf-8") if not line.startswith("#"))
    for row in csv.DictReader(lines):
        key = row["workload"], row["setting"], row["implementation"], int(row["clients"]), row["figure"]
        values[key].append(float(row["value"]))
    return values


def bars(file, title, unit, rows, logarithmic=False):
    """Horizontal bars with names: medians, and lines from the least to the greatest value. Ours are blue.

    No plot of what was not measured."""
    if not rows:
        return
    rows = rows[::-1]
    figure, axes = plt.subplots(figsize=(7.2, 1.2 + 0.34 * len(rows)))
    medians = [statistics.median(values) for _, values, _ in rows]
    ranges = [[m - min(v) for m, (_, v, _) in zip(medians, rows)], [max(v) - m for m, (_, v, _) in zip(medians, rows)]]
    colours = [OURS if is_ours else THEIRS for _, _, is_ours in rows]
    axes.barh([name for name, _, _ in rows], medians, xerr=ranges, color=colours, ecolor=INK, height=0.7)
    if logarithmic:
        axes.set_xscale("log")
    for y, median in enumerate(medians):
        axes.annotate(f"{median:.0f}" if median >= 100 else f"{median:.3g}", (max(rows[y][1]), y), (6, 0), textcoords="offset points", va="center")
    axes.margins(x=0.12)
    axes.set_xlabel(unit)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13)
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    svg = text.getvalue().replace(INK, "var(--ink)").replace(FAINT, "var(--faint)")
    svg = svg.replace("<defs>", STYLE + "\n <defs>", 1)
    (DIRECTORY / file).write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")


def select(values, workload, setting, clients, figure):
    """Name, values and whether it is DLOCK: for each implementation."""
    for (a, b, implementation, c, d), of_rounds in values.items():
        if (a, b, c, d) == (workload, setting, clients, figure):
            yield implementation, of_rounds, implementation.split()[-1] == "dlock"


def main():
    values = read()
    bars("cpu.svg", "Server CPU of a lock that is released at once", "microseconds",
         list(select(values, "pair", "none", 1, "CPU, pair")))
    for workers in 8, 64:
        peers = list(select(values, "peers", f"{workers} workers, 1 ms", workers, "wait max"))
        bars(f"peers-{workers}.svg", f"{workers} workers that contend for one lock: longest wait", "milliseconds",
             sorted(peers, key=lambda row: statistics.median(row[1])), logarithmic=True)
    faults = ["all up", "first stopped", "first killed", "last stopped", "last killed"]
    quorum = [(f"five servers, {fault}", values["quorum", fault, "dlock", 64, "wait p99"], True) for fault in faults]
    quorum.append(("one server", values["quorum", "all up", "one server", 64, "wait p99"], False))
    bars("quorum.svg", "64 clients that contend for a lock over five servers: wait p99", "milliseconds", quorum)


main()
