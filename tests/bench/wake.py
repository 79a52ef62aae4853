"""How long an answer is on its way, from `respond_elicitation` to the server, and what waiting costs.

    python tests/bench/wake.py [--rounds 60] [--seconds 5] [--check]

The answer is committed to SQLite, wakes the worker and travels to a server process over stdio; the server notes when it
has it. Beside it stands a bare round trip over a loopback socket to another process, of the same run. The answer comes
from the same process (the doorbell) and from another one (the poll). Then: the processor time of a kit that waits with
0, 1 and 20 executions. ``--check`` exits with 1 above a limit.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from m3nb import ElicitationResponse, ExecutionHandle, MCPTestKit, SQLiteExecutionStore, StdioServer

SERVER = Path(__file__).with_name("asking_server.py")
SAME_LIMIT_MS = 5.0
OTHER_LIMIT_MS = 60.0
ANSWER = ElicitationResponse(action="accept", content={"city": "Pune"})

ECHO = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as line:
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := line.recv(64):
        line.sendall(data)
"""


def loopback(times: int) -> list[float]:
    """Milliseconds of bare round trips to another process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = subprocess.Popen([sys.executable, "-c", ECHO, str(listener.getsockname()[1])])
        line, _ = listener.accept()
        took = []
        with line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(times):
                began = time.monotonic_ns()
                line.sendall(b"x" * 40)
                line.recv(64)
                took.append((time.monotonic_ns() - began) / 1e6)
                time.sleep(0.01)
        other.wait()
    return took


def answered(handle: ExecutionHandle, log: Path, times: int, answer: Callable[[str, str], int]) -> list[float]:
    """Milliseconds from the moment that ``answer`` reports to the arrival at the server, once per round."""
    took: list[float] = []
    while len(took) < times:
        pending = handle.pending_elicitation()
        if pending is None:
            time.sleep(0.001)
            continue
        began = answer(handle.execution_id, pending.round_id)
        while len(arrivals := log.read_text().splitlines() if log.exists() else []) <= len(took):
            time.sleep(0.001)
        took.append((int(arrivals[len(took)]) - began) / 1e6)
        time.sleep(0.03)
    return took


def same_process(kit: MCPTestKit, folder: Path, times: int) -> list[float]:
    """Answers through the handle."""
    handle = ask(kit, folder / "same.log", times)

    def answer(_execution_id: str, round_id: str) -> int:
        began = time.monotonic_ns()
        handle.respond_elicitation(round_id, {"elicitation": ANSWER}, idempotency_key=round_id)
        return began

    return answered(handle, folder / "same.log", times, answer)


def other_process(kit: MCPTestKit, folder: Path, times: int) -> list[float]:
    """Answers through the store, from a process that does nothing else."""
    handle = ask(kit, folder / "other.log", times)
    command = [sys.executable, __file__, "--answer", str(folder / "bench.sqlite")]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdin is not None
    assert other.stdout is not None
    stdin, stdout = other.stdin, other.stdout

    def answer(execution_id: str, round_id: str) -> int:
        stdin.write(f"{execution_id} {round_id}\n")
        stdin.flush()
        return int(stdout.readline())

    took = answered(handle, folder / "other.log", times, answer)
    stdin.close()
    other.wait()
    return took


def answer_for(path: str) -> None:
    """The other process: commit the answer to each round named on stdin, print when that began."""
    store = SQLiteExecutionStore(path)
    rounds = store.managed_input_store
    for line in sys.stdin:
        execution_id, round_id = line.split()
        began = time.monotonic_ns()
        record = rounds.get_round(execution_id, round_id)
        assert record is not None
        rounds.submit_responses(
            execution_id,
            round_id,
            {"elicitation": ANSWER},
            owner_id=record.owner_id,
            lease_token=record.lease_token,
            response_idempotency_key=round_id,
        )
        print(began, flush=True)
    store.close()


def ask(kit: MCPTestKit, log: Path, times: int) -> ExecutionHandle:
    """An execution that asks so many times."""
    server = StdioServer(
        name="asking", command=sys.executable, args=(str(SERVER),), environment={"ASKING_LOG": str(log)}
    )
    agent = kit.agents([{"harness": "scripted"}])[0]
    return agent.submit(
        f'asking:ask {{"count": {times}}}', server=server, human_input="managed", elicitation_round_limit=times
    )


def waiting(folder: Path, executions: int, seconds: float) -> float:
    """Percent of one core that a kit takes while so many executions wait."""
    store = SQLiteExecutionStore(folder / f"waiting-{executions}.sqlite")
    with MCPTestKit(store=store, env={}) as kit:
        handles = [ask(kit, folder / "unused.log", 1) for _ in range(executions)]
        while not all(handle.pending_elicitation() for handle in handles):
            time.sleep(0.05)
        time.sleep(1)
        before = time.process_time()
        time.sleep(seconds)
        used = time.process_time() - before
    store.close()
    return 100 * used / seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--answer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        answer_for(options.answer)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = SQLiteExecutionStore(folder / "bench.sqlite")
        with MCPTestKit(store=store, env={}) as kit:
            bare = statistics.median(loopback(options.rounds))
            same = statistics.median(same_process(kit, folder, options.rounds))
            other = statistics.median(other_process(kit, folder, options.rounds))
        store.close()
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {options.rounds}")
        print(f"bare loopback round trip     {bare:6.2f} ms")
        print(f"answer from this process     {same:6.2f} ms, {same - bare:5.2f} above (limit {SAME_LIMIT_MS:g})")
        print(f"answer from another process  {other:6.2f} ms, {other - bare:5.2f} above (limit {OTHER_LIMIT_MS:g})")
        idle, one, twenty = (waiting(folder, count, options.seconds) for count in (0, 1, 20))
        print(f"a waiting kit, % of a core: {idle:.2f} with no execution, {one:.2f} with one, {twenty:.2f} with twenty")
        print(f"per waiting execution: {max(0.0, twenty - idle) / 20:.3f} %")
    bad = same - bare > SAME_LIMIT_MS or other - bare > OTHER_LIMIT_MS
    return 1 if options.check and bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
