"""The lines of `store.py` for what the reference package is slow at, by number: 11 to 15.

    python tests/bench/store_lines.py PACKAGE FOLDER

measures one package in its own interpreter, beside bare sqlite3 in the same process, and prints JSON: name to
``[value, floor]``. Times are lower quartiles in microseconds; ours and the floor take turns.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from store_rounds import Bare, Managed, Rounds

Pair = tuple[float, float]
"""A measured value and the floor's."""

ROUNDS = 60
LISTED = 1000
THREADS = (1, 2, 4, 8)
ROUNDS_OF_A_THREAD_TEST = 96
WAITED_SECONDS = 4.0
IMPORTS = 7
POLL_SECONDS = 0.05
CLASSIC = Path(__file__).parent.parent / "servers" / "classic_server.py"

UNITS = {
    "(11) one transition": "µs",
    "(11) lifecycle": "µs",
    "(11) get_round": "µs",
    "(11) list of 1000 rounds": "µs",
    "(12) lifecycle, store made with a path": "µs",
    "(12) lifecycle, resolved store": "µs",
    "(13) descriptors after 50 reads": "",
    "(13) descriptors after 50 lifecycles": "",
    **{f"(14) transitions, threads: {threads}": "/s" for threads in THREADS},
    "(15) import, time": "ms",
    "(15) import of the kit, time": "ms",
    "(15) import, memory": "MB",
    "(15) import of the kit, memory": "MB",
    "(15) 1 waiting execution": "% CPU",
    "(15) 5 waiting executions": "% CPU",
    "(15) database opens of 5 waiting": "/s",
}
FLOORS = {
    "(11)": "bare sqlite3, one open connection",
    "(12)": "bare sqlite3, a fresh connection each time; for the resolved store: one open connection",
    "(13)": "bare sqlite3, one open connection",
    "(14)": "bare sqlite3, one open connection per thread",
    "(15)": "bare python; for waiting: a bare poll of data_version every 50 ms, with one open",
}


def quartile(values: list[float]) -> float:
    """The lower quartile, which other work on the machine disturbs least."""
    return statistics.quantiles(values, n=4)[0]


def timed(works: list[Callable[[int], object]], times: int) -> list[float]:
    """Microseconds of each work; they take turns."""
    taken: list[list[float]] = [[] for _ in works]
    for number in range(times):
        for work, seconds in zip(works, taken, strict=True):
            started = time.perf_counter()
            work(number)
            seconds.append((time.perf_counter() - started) * 1e6)
    return [quartile(values) for values in taken]


def lifecycles(pair: tuple[Rounds, Rounds], times: int = ROUNDS) -> tuple[Pair, Pair]:
    """A whole round, and its third transition alone."""
    whole: list[list[float]] = [[], []]
    single: list[list[float]] = [[], []]
    for number in range(times):
        for rounds, all_of_it, one in zip(pair, whole, single, strict=True):
            total = 0.0
            for index, step in enumerate(rounds.steps(number)):
                started = time.perf_counter()
                step()
                seconds = time.perf_counter() - started
                total += seconds
                if index == 2:
                    one.append(seconds * 1e6)
            all_of_it.append(total * 1e6)
    return (quartile(whole[0]), quartile(whole[1])), (quartile(single[0]), quartile(single[1]))


def costs(package: str, folder: Path) -> dict[str, Pair]:
    """(11) and (12)."""
    kept, resolved = Bare(folder / "kept.sqlite"), Managed(package, folder / "resolved.sqlite")
    whole, single = lifecycles((resolved, kept))
    found = {"(11) one transition": single, "(11) lifecycle": whole, "(12) lifecycle, resolved store": whole}
    fresh = Bare(folder / "fresh.sqlite", kept=False)
    alone = Managed(package, folder / "alone.sqlite", resolved=False)
    found["(12) lifecycle, store made with a path"] = lifecycles((alone, fresh))[0]
    for rounds in (resolved, kept):
        for index in range(LISTED):
            rounds.steps(10**6, index)[0]()
    ours, floor = timed([resolved.get, kept.get], ROUNDS)
    found["(11) get_round"] = (ours, floor)
    ours, floor = timed([lambda _: resolved.list(10**6), lambda _: kept.list(10**6)], 12)
    found["(11) list of 1000 rounds"] = (ours, floor)
    return found


def descriptors(package: str, folder: Path) -> dict[str, Pair]:
    """(13): with the garbage collector off."""
    found: dict[str, list[float]] = {}
    gc.collect()
    gc.disable()
    for rounds in (Managed(package, folder / "descriptors.sqlite", resolved=False), Bare(folder / "d.sqlite")):
        before = len(os.listdir("/proc/self/fd")) - (3 if isinstance(rounds, Bare) else 0)
        for step in rounds.steps(0):
            step()
        for _ in range(50):
            rounds.get(0)
        after_reads = len(os.listdir("/proc/self/fd"))
        found.setdefault("(13) descriptors after 50 reads", []).append(after_reads - before)
        for number in range(1, 51):
            for step in rounds.steps(number):
                step()
            rounds.get(number)
        after = len(os.listdir("/proc/self/fd"))
        found.setdefault("(13) descriptors after 50 lifecycles", []).append(after - before)
    gc.enable()
    return {name: (values[0], values[1]) for name, values in found.items()}


def per_second(makers: list[Rounds]) -> float:
    """Transitions per second of as many threads as there are rounds given, each with executions of its own."""
    share = ROUNDS_OF_A_THREAD_TEST // len(makers)
    work = [
        [step for number in range(share) for step in rounds.steps(10_000 * len(makers) + 1000 * thread + number)]
        for thread, rounds in enumerate(makers)
    ]

    def run(steps: list[Callable[[], object]]) -> None:
        for step in steps:
            step()

    threads = [threading.Thread(target=run, args=(steps,)) for steps in work]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 5 * share * len(makers) / (time.perf_counter() - started)


def throughput(package: str, folder: Path) -> dict[str, Pair]:
    """(14)."""
    ours, path = Managed(package, folder / "threads.sqlite"), folder / "bare-threads.sqlite"
    for step in ours.steps(0):
        step()
    return {
        f"(14) transitions, threads: {threads}": (
            per_second([ours] * threads),
            per_second([Bare(path, shared=True) for _ in range(threads)]),
        )
        for threads in THREADS
    }


IMPORT = """
{}
with open("/proc/self/status") as status:
    print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""


def importing(package: str) -> dict[str, Pair]:
    """(15): the whole process, from its start to its end. The kit is what a person uses next."""
    statements = {
        "import": f"import {package}",
        "import of the kit": f"from {package} import MCPTestKit; from {package}.storage import SQLiteExecutionStore",
        "floor": "pass",
    }
    seconds: dict[str, list[float]] = {name: [] for name in statements}
    memory: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(IMPORTS):
        for name, statement in statements.items():
            started = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", IMPORT.format(statement)], capture_output=True, text=True, check=True
            )
            seconds[name].append((time.perf_counter() - started) * 1e3)
            memory[name].append(float(done.stdout) / 1024)
    return {
        f"(15) {name}, {what}": (quartile(values[name]), quartile(values["floor"]))
        for what, values in (("time", seconds), ("memory", memory))
        for name in ("import", "import of the kit")
    }


def waiting(folder: Path) -> dict[str, Pair]:
    """(15): executions that wait for a person, each with a server of its own. The reference needs an account for it."""
    from m3nb import MCPTestKit, SQLiteExecutionStore, StdioServer

    opens = 0

    def count(event: str, _: object) -> None:
        nonlocal opens
        opens += event == "sqlite3.connect"

    sys.addaudithook(count)
    floor, _ = used(lambda stop: bare_poll(folder / "poll.sqlite", stop))
    found: dict[str, Pair] = {}
    for executions, noun in ((1, "execution"), (5, "executions")):
        with MCPTestKit(store=SQLiteExecutionStore(folder / f"{executions}.sqlite"), env={}) as kit:
            server = StdioServer(name="classic", command=sys.executable, args=(str(CLASSIC),))
            agent = kit.agents([{"harness": "scripted"}])[0]
            handles = [
                agent.submit("Go.", server=server, tools=["classic:book"], human_input="managed")
                for _ in range(executions)
            ]
            while not all(handle.pending_elicitation() for handle in handles):
                time.sleep(0.05)
            time.sleep(1)
            opens = 0
            percent, _ = used(lambda stop: stop.wait())
            found[f"(15) {executions} waiting {noun}"] = (percent, floor)
            if executions > 1:
                found[f"(15) database opens of {executions} waiting"] = (opens / WAITED_SECONDS, 1 / WAITED_SECONDS)
    return found


def bare_poll(path: Path, stop: threading.Event) -> None:
    """The least that noticing another process's commit can cost."""
    import sqlite3

    connection = sqlite3.connect(path)
    while not stop.wait(POLL_SECONDS):
        connection.execute("PRAGMA data_version").fetchone()
    connection.close()


def used(work: Callable[[threading.Event], object]) -> tuple[float, float]:
    """Processor time of this process while something runs in a thread, in percent of one core; and the seconds."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,))
    thread.start()
    cpu, started = time.process_time(), time.monotonic()
    time.sleep(WAITED_SECONDS)
    seconds = time.monotonic() - started
    percent = (time.process_time() - cpu) / seconds * 100
    stop.set()
    thread.join()
    return percent, seconds


def measure(package: str, folder: Path) -> dict[str, Pair]:
    """Everything about one package."""
    found = costs(package, folder) | descriptors(package, folder) | throughput(package, folder) | importing(package)
    return found | (waiting(folder) if package == "m3nb" else {})


def print_lines(reference: str | None) -> None:
    """Measure both packages, each in an interpreter of its own, and print one line for each name."""
    ours = _elsewhere(sys.executable, "m3nb")
    theirs = _elsewhere(reference, "m3") if reference else {}
    for name, unit in UNITS.items():
        text = _said("ours", ours[name], unit)
        if name in theirs:
            ratio = ours[name][0] / theirs[name][0]
            text += f";  {_said('reference', theirs[name], unit)};  ours / reference {ratio:.2f}"
        print(f"{name:>42}: {text}")
    for number, floor in FLOORS.items():
        print(f"{number:>42}: floor is {floor}")


def _said(who: str, pair: Pair, unit: str) -> str:
    value, floor = (f"{number:.0f}" if number >= 100 else f"{number:.3g}" for number in pair)
    return f"{who} {value}{unit and ' '}{unit}, floor {floor}, ratio {pair[0] / pair[1]:.2f}"


def _elsewhere(python: str, package: str) -> dict[str, Pair]:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([python, __file__, package, folder], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Pair] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
