"""What a round costs in the store, against bare sqlite3 and, if there is one, the reference package.

    python tests/bench/store.py [--rounds 400] [--reference PYTHON] [--check]

The floor and ours take turns in one process, one round each; of the times the lower quartile counts, which other work
on the machine disturbs least. The floor is sqlite3 on a connection that is kept open, WAL and synchronous=FULL, a
round's five transitions as plain statements, each with a row in an events table; no JSON, no checks, no objects.
``--reference`` is the interpreter of another environment with ``sf-m3[storage]==0.2.37``; it takes turns as a
subprocess. ``--check`` exits with 1 if a ratio is above its limit. The lines with a number, (11) to (15), are about
what the reference is slow at (`store_lines`); they have no limits.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from store_lines import print_lines
from store_rounds import Bare, Managed, Turn, turns

ONE_SCHEMA_LIMIT = 2.5
MANY_SCHEMAS_LIMIT = 6.0
REFERENCE_LIMIT = 0.25
MANY = 200
WARM_UP = 20


def remote_turns(python: str, path: Path) -> Turn:
    """The reference, in its own interpreter."""
    process = subprocess.Popen(
        [python, __file__, "--serve", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    asks, tells = process.stdin, process.stdout

    def turn(rounds: int) -> float:
        asks.write(f"{rounds}\n")
        asks.flush()
        return float(tells.readline())

    return turn


def serve(path: Path) -> None:
    """Run turns of the reference as they are asked for on standard input."""
    turn = turns(Managed("m3", path))
    for line in sys.stdin:
        print(turn(int(line)), flush=True)


def measure(compared: dict[str, Turn], rounds: int, *, warm: bool) -> dict[str, float]:
    """Microseconds per round: the lower quartile over rounds that alternate."""
    if warm:
        for turn in compared.values():
            turn(WARM_UP)
    taken: dict[str, list[float]] = {name: [] for name in compared}
    for _ in range(rounds):
        for name, turn in compared.items():
            taken[name].append(turn(1) * 1e6)
    return {name: statistics.quantiles(values, n=4)[0] for name, values in taken.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--reference", metavar="PYTHON")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return report(Path(folder), options.rounds, options.reference, options.check)


def report(folder: Path, rounds: int, reference: str | None, check: bool) -> int:
    """Measure, print, and say whether all limits hold."""
    floor = turns(Bare(folder / "floor.sqlite"))
    compared = {"floor": floor, "ours": turns(Managed("m3nb", folder / "one.sqlite"))}
    if reference:
        compared["reference"] = remote_turns(reference, folder / "reference.sqlite")
    one = measure(compared, rounds, warm=True)
    # Every schema is new here: its validator has to be built.
    many = measure(
        {"floor": floor, "ours": turns(Managed("m3nb", folder / "many.sqlite", schemas=MANY))}, MANY, warm=False
    )
    ratios = [
        ("one schema, to the floor", one["ours"] / one["floor"], ONE_SCHEMA_LIMIT),
        (f"{MANY} distinct schemas, to the floor", many["ours"] / many["floor"], MANY_SCHEMAS_LIMIT),
    ]
    if reference:
        ratios.append(("one schema, to the reference", one["ours"] / one["reference"], REFERENCE_LIMIT))
    for name, value in (*one.items(), *((f"{key}, {MANY} schemas", value) for key, value in many.items())):
        print(f"{name:>34}: {value:7.0f} µs for the five transitions of a round")
    for name, ratio, limit in ratios:
        print(f"{name:>34}: {ratio:7.2f}  (limit {limit:g})")
    print_lines(reference)
    return int(check and any(ratio > limit for _, ratio, limit in ratios))


if __name__ == "__main__":
    sys.exit(main())
