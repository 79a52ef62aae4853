"""Plays the cases against m3nb: one agent, one call per case, answered by a driver that also tries what must fail.

A *play* is one call. Most plays of a combination share one execution; a play that ends its execution has its own.
What was seen is kept per play: the pending rounds, the stored records (also as another process reads them), the
events, and the server's own log.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from servers.case_server import KEY, LEGACY, MODERN, VERSIONS, results_of

from m3nb import (
    ElicitationResponse,
    ExecutionHandle,
    ExecutionResult,
    ExecutionStatus,
    HTTPServer,
    MCPTestKit,
    PendingElicitationRound,
    StdioServer,
)
from m3nb.errors import ManagedInputValidationError
from m3nb.storage import ManagedInputRecord, ManagedInputStore, SQLiteExecutionStore

HERE = Path(__file__).parent
SERVER = HERE / "servers" / "case_server.py"
FILES = sorted([*(HERE / "cases").glob("*.json"), *(HERE / "cases" / "extra").glob("*.json")])
CASES: list[dict[str, Any]] = [json.loads(path.read_text("utf-8")) for path in FILES]
KINDS = ("tool", "prompt", "resource")
TRANSPORTS = ("stdio", "http")
ERAS = (LEGACY, MODERN)
CLASSIC_KEY = "elicitation"
NOTE = {"note": 'blanks  and é\u0301, \\ and " stay'}
ARGUMENTS: dict[str, dict[str, Any] | None] = {
    "tool": {**NOTE, "deep": {"list": [1, 1.5, None, {"a": []}]}},
    "prompt": NOTE,
    "resource": None,
}
ANSWER_WITHIN = 1.0


@dataclass(frozen=True)
class Combination:
    """Which operation, over what, in which era; ``number`` counts them from 0."""

    kind: str
    transport: str
    era: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.transport}-{self.era}"


COMBINATIONS = [
    Combination(kind, transport, era, number)
    for number, (kind, transport, era) in enumerate((k, t, e) for k in KINDS for t in TRANSPORTS for e in ERAS)
]


def applies(case: Mapping[str, Any], era: str) -> bool:
    """Whether a case can come in an era: a form can in each, anything else says so."""
    protocol = case.get("protocol", "any")
    return protocol == "any" or VERSIONS[era] in protocol


@dataclass(frozen=True)
class Play:
    """One call. ``served`` is what the server asks; ``ends`` says that the execution ends with it."""

    variant: str
    case: dict[str, Any]
    served: dict[str, Any]
    server: str = "cases"
    ends: bool = False
    answered: bool = True
    actions: tuple[str, ...] = ()
    address: str = "case"

    @property
    def id(self) -> str:
        return str(self.served["id"])

    def name(self, kind: str) -> str:
        return f"{self.address}://{self.id}" if kind == "resource" else self.id


def plays_of(case: dict[str, Any], combination: Combination) -> list[Play]:
    """The plays of a case. Which there are follows from what its file holds, never from its name."""
    if not applies(case, combination.era):
        return []

    def varied(variant: str, *, more: Mapping[str, Any] | None = None, **how: Any) -> Play:
        return Play(variant, case, {**case, "id": f"{case['id']}.{variant}", **(more or {})}, **how)

    if case.get("kind") == "url" and "results" in case:
        return [
            varied(
                str(number),
                actions=(result["result"]["action"],),
                ends="recorded_as" in result,
                answered="recorded_as" not in result,
            )
            for number, result in enumerate(case["results"])
        ]
    refused = case["expect"] == "refuse"
    plays = [Play("", case, case, ends=refused, answered=not refused)]
    if "followups" in case:
        plays.append(varied("early", more={"early": True, **renamed(case, "early")}))
        # Two servers give the same id, and only the other one says, while it asks something else, that it is done.
        shared = renamed(case, "shared")
        plays.append(varied("elsewhere", more={**shared, "followups": []}, server="other"))
        plays.append(varied("silent", more={**shared, "followups": []}))
        plays.append(varied("later", more={**renamed(case, "later"), "followups": shared["followups"]}, server="other"))
    if case.get("kind") == "error" and len(case["error"]["data"]["elicitations"]) > 1:
        plays.append(varied("declined", actions=("accept", "decline"), ends=True))
    if "_meta" in case.get("result", {}):
        members = {"content": [], "messages": [], "contents": []}
        plays.append(varied("with-content", more={"result": {**case["result"], **members}}))
    if "result" in case and "inputRequests" not in case["result"]:
        plays.append(varied("for-ever", more={"for_ever": True}, ends=True))
    if combination.kind == "resource" and "kind" not in case:
        plays = [Play("", case, case, address=("case", "any")[(combination.number + combination.number // 2) % 2])]
    return plays


def renamed(case: dict[str, Any], new: str) -> dict[str, Any]:
    """The request and what follows it with another elicitation id: a server gives each once."""
    old = json.dumps(case["request"]["params"]["elicitationId"])
    text = json.dumps({"request": case["request"], "followups": case["followups"]})
    again: dict[str, Any] = json.loads(text.replace(old, json.dumps(new)))
    return again


def params_asked(play: Play, era: str) -> list[dict[str, dict[str, Any]]]:
    """What a person must be asked in each round: the parameters by request key."""
    kind = play.served.get("kind")
    if kind == "error":
        return [{one["elicitationId"]: one for one in play.served["error"]["data"]["elicitations"]}]
    asked = [
        {
            key: request["params"]
            for key, request in result.get("inputRequests", {}).items()
            if request["method"] == "elicitation/create"
        }
        for result in results_of(play.served)
    ]
    if era == LEGACY:
        return [{CLASSIC_KEY: round_[KEY]} for round_ in asked]
    return [round_ for round_ in asked if round_]


def answers_to(play: Play, pending: PendingElicitationRound, number: int) -> dict[str, ElicitationResponse]:
    """The answer that is committed: of the valid contents each in its turn, or what the file says."""
    case = play.case
    fixed = case.get("retry", {}).get("inputResponses")
    if fixed is not None:
        return {key: ElicitationResponse(**answer) for key, answer in fixed.items()}
    answers = {}
    for index, (key, request) in enumerate(pending.requests.items()):
        action = play.actions[index] if play.actions else "accept"
        content = None
        if "valid" in case and not case["valid"]:
            action = "decline"
        elif "valid" in case:
            content = case["valid"][number % len(case["valid"])]
        elif request.mode == "form":
            content = example(request.requested_schema)
        answers[key] = ElicitationResponse(action=action, content=content)
    return answers


def example(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A content for the small forms of multi-round-trip cases."""
    values = {"string": "Sam", "boolean": True}
    return {
        name: part["enum"][0] if "enum" in part else values[part["type"]] for name, part in schema["properties"].items()
    }


def wrong_answers(play: Play, pending: PendingElicitationRound, right: Mapping[str, ElicitationResponse]) -> list[Any]:
    """Answers to be refused: contents the file calls invalid, part of the keys, a key too many, content for a URL."""
    # Some contents are no objects, and the checked constructor would refuse them before the store can.
    contents = play.case.get("invalid", [])
    wrong = [
        {key: ElicitationResponse.model_construct(action="accept", content=content) for key in pending.requests}
        for content in contents
    ]
    wrong += [{key: right[key]} for key in right if len(right) > 1]
    wrong.append({**right, "another key": ElicitationResponse(action="decline")})
    if any(request.mode == "url" for request in pending.requests.values()):
        wrong.append({key: ElicitationResponse(action="accept", content={}) for key in right})
    return wrong


@dataclass
class Try:
    """A wrong answer, what it was refused with, and whether the round was pending afterwards."""

    error: ManagedInputValidationError | None
    content: Any
    pending: bool


@dataclass
class Asked:
    """A round as its execution's handle showed it, what was tried, what was committed and when."""

    pending: PendingElicitationRound
    tries: list[Try] = field(default_factory=list)
    answer: dict[str, ElicitationResponse] | None = None
    key: str = ""
    at: float = 0.0


@dataclass
class Seen:
    """Everything that was seen of one play."""

    play: Play
    combination: Combination
    result: ExecutionResult
    asked: list[Asked]
    records: list[ManagedInputRecord]
    reopened: list[dict[str, Any]]
    log: list[dict[str, Any]]
    hello: list[dict[str, Any]]

    @property
    def era(self) -> str:
        return self.combination.era

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The requests of this call as they arrived at the server, retries included."""
        return [line["message"] for line in self.log if line["event"] == "call"]

    @property
    def replies(self) -> list[dict[str, Any]]:
        """The replies to ``elicitation/create`` as they arrived at the server."""
        return [line["message"] for line in self.log if line["event"] == "answer"]

    @property
    def delivered(self) -> list[Any]:
        """Each answer of a person that reached the server, from the server's own log."""
        if self.era == LEGACY:
            return [reply["result"] for reply in self.replies if "result" in reply]
        return [call["params"]["inputResponses"] for call in self.calls if call["params"].get("inputResponses")]

    @property
    def delivered_at(self) -> list[float]:
        names = ("answer",) if self.era == LEGACY else ("call",)
        lines = [line for line in self.log if line["event"] in names]
        return [line["at"] for line in (lines if self.era == LEGACY else lines[1:])]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The payloads of the execution's events of a kind that are about this play."""
        own = {record.round_id for record in self.records}
        payloads = [event.payload for event in self.result.trace if event.kind == kind]
        name = self.play.name(self.combination.kind)
        return [
            payload
            for payload in payloads
            if payload.get("round_id") in own
            or (payload.get("server") == self.play.server and name in payload.values())
        ]

    @property
    def own_result(self) -> bool:
        """Whether the agent got what the server said in the end."""
        said = json.dumps(f"{self.play.id} ended")
        return any(
            event.kind.endswith(".result") and said in json.dumps(event.model_dump(mode="json")["payload"])
            for event in self.result.trace
        )


class Run:
    """One execution of some plays."""

    def __init__(self, name: str, plays: list[Play], handle: ExecutionHandle, rounds: ManagedInputStore) -> None:
        self.rounds = rounds
        self.name = name
        self.plays = plays
        self.handle = handle
        self.asked: list[Asked] = []

    def play_of(self, pending: PendingElicitationRound) -> Play:
        kind = pending.operation_kind
        return next(p for p in self.plays if p.server == pending.server and p.name(kind) == pending.operation_name)

    def look(self, number: int) -> bool:
        """React to a new round; False when the execution has ended."""
        now = self.handle.snapshot().lifecycle
        pending = self.handle.pending_elicitation() if now is ExecutionStatus.WAITING_FOR_INPUT else None
        if pending is None:
            return now is not ExecutionStatus.FINISHED
        if not self.asked or self.asked[-1].pending.round_id != pending.round_id:
            asked = Asked(pending)
            self.asked.append(asked)
            play = self.play_of(pending)
            if play.answered:
                self.answer(asked, play, number)
        return True

    def answer(self, asked: Asked, play: Play, number: int) -> None:
        pending = asked.pending
        right = answers_to(play, pending, number)
        for wrong in wrong_answers(play, pending, right):
            error = None
            try:
                self.handle.respond_elicitation(pending.round_id, wrong, idempotency_key="wrong")
            except ManagedInputValidationError as refused:
                error = refused
            record = self.rounds.get_round(pending.execution_id, pending.round_id)
            asked.tries.append(Try(error, wrong, record is not None and record.status == "pending"))
        asked.answer, asked.at, asked.key = right, time.monotonic(), f"key of {pending.round_id}"
        self.handle.respond_elicitation(pending.round_id, right, idempotency_key=asked.key)


class Stage:
    """Plays each combination once, when it is first asked for. ``close`` ends the HTTP server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cases = folder / "cases"
        self.cases.mkdir()
        every = [play for combination in COMBINATIONS for case in CASES for play in plays_of(case, combination)]
        for play in every:
            (self.cases / f"{play.id}.json").write_text(json.dumps(play.served), encoding="utf-8")
        self.log = folder / "http.jsonl"
        self._web = subprocess.Popen(
            [sys.executable, str(SERVER), str(self.cases), "http"],
            stdout=subprocess.PIPE,
            text=True,
            env={"CASE_LOG": str(self.log)},
        )
        assert self._web.stdout is not None
        self._port = int(self._web.stdout.readline())
        self._seen: dict[Combination, dict[str, dict[str, Seen]]] = {}
        self.left: dict[Combination, list[str]] = {}

    def close(self) -> None:
        self._web.terminate()
        self._web.communicate()

    def seen(self, combination: Combination) -> dict[str, dict[str, Seen]]:
        """What was seen: by case id, by variant."""
        if combination not in self._seen:
            # Set first: what has failed is not played again for each test.
            self._seen[combination] = {}
            self._seen[combination] = self._play(combination)
        return self._seen[combination]

    def _play(self, combination: Combination) -> dict[str, dict[str, Seen]]:
        plays = [play for case in CASES for play in plays_of(case, combination)]
        path = self.folder / f"{combination}.sqlite"
        before = leftovers(self._web.pid)
        with closing(SQLiteExecutionStore(path)) as store, MCPTestKit(store=store, env={}) as kit:
            agent = kit.agents([{"harness": "scripted"}])[0]
            together = [play for play in plays if not play.ends]
            runs = [self._start(agent, combination, "together", together)]
            runs += [self._start(agent, combination, play.id, [play]) for play in plays if play.ends]
            going = list(runs)
            deadline = time.monotonic() + 120
            looked_at = -1
            while going:
                assert time.monotonic() < deadline, [run.name for run in going]
                version = store.data_version()
                if version == looked_at:
                    time.sleep(0.002)
                    continue
                looked_at = version
                going = [run for run in going if run.look(combination.number)]
            reopened = reopen(path, [run.handle.execution_id for run in runs])
            self.left[combination] = sorted(leftovers(self._web.pid) - before)
            seen: dict[str, dict[str, Seen]] = {}
            for run in runs:
                for one in self._collect(run, combination, store, reopened):
                    seen.setdefault(one.play.case["id"], {})[one.play.variant] = one
            return seen

    def _start(self, agent: Any, combination: Combination, name: str, plays: list[Play]) -> Run:
        servers = [self._server(combination, server, name) for server in sorted({play.server for play in plays})]
        lines = [line_of(play, combination.kind) for play in plays]
        within = None if all(play.answered for play in plays) else ANSWER_WITHIN
        handle = agent.submit(
            "\n".join(["Play these cases.", *lines]),
            servers=servers,
            human_input="managed",
            elicitation_round_limit=1000,
            answer_within=within,
        )
        return Run(name, plays, handle, agent.kit.store.managed_input_store)

    def _server(self, combination: Combination, server: str, run: str) -> StdioServer | HTTPServer:
        protocol = "auto" if combination.kind == "tool" else combination.era
        if combination.transport == "http":
            where = f"{combination}.{run}.{server}"
            url = f"http://127.0.0.1:{self._port}/{combination.era}/{where}"
            return HTTPServer(name=server, url=url, protocol=protocol)
        return StdioServer(
            name=server,
            command=sys.executable,
            args=(str(SERVER), str(self.cases), combination.era),
            environment={"CASE_LOG": str(self._stdio_log(combination, server, run))},
            protocol=protocol,
        )

    def _stdio_log(self, combination: Combination, server: str, run: str) -> Path:
        return self.folder / f"{combination}.{run}.{server}.jsonl"

    def _read_log(self, combination: Combination, server: str, run: str) -> list[dict[str, Any]]:
        stdio = combination.transport == "stdio"
        path = self._stdio_log(combination, server, run) if stdio else self.log
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
        return [line for line in lines if stdio or line["run"] == f"{combination}.{run}.{server}"]

    def _collect(
        self, run: Run, combination: Combination, store: SQLiteExecutionStore, reopened: Mapping[str, Any]
    ) -> Iterator[Seen]:
        result = run.handle.finished_result()
        assert result is not None
        records = store.managed_input_store.list_rounds(run.handle.execution_id)
        logs = {s: self._read_log(combination, s, run.name) for s in {play.server for play in run.plays}}
        for play in run.plays:
            own = [
                record
                for record in records
                if (record.pending.server, record.pending.operation_name) == (play.server, play.name(combination.kind))
            ]
            yield Seen(
                play=play,
                combination=combination,
                result=result,
                asked=[asked for asked in run.asked if run.play_of(asked.pending) is play],
                records=own,
                reopened=[reopened[record.round_id] for record in own],
                log=[line for line in logs[play.server] if line.get("case") == play.id],
                hello=[line for line in logs[play.server] if line["event"] == "hello"],
            )


def line_of(play: Play, kind: str) -> str:
    """The scripted harness's line for a play."""
    target = f"{play.server}:{play.name(kind)}"
    if kind == "resource":
        return f"resource {target}"
    return f"{'' if kind == 'tool' else 'prompt '}{target} {json.dumps(ARGUMENTS[kind])}"


def reopen(path: Path, executions: list[str]) -> dict[str, dict[str, Any]]:
    """Every round as a new process reads it from the file, by round id."""
    code = (
        "import json, sys\n"
        "from m3nb.storage import SQLiteManagedInputStore\n"
        "store = SQLiteManagedInputStore(sys.argv[1])\n"
        "rounds = [record for name in sys.argv[2:] for record in store.list_rounds(name)]\n"
        "print(json.dumps({r.round_id: r.pending.model_dump(mode='json') for r in rounds}))\n"
    )
    command = [sys.executable, "-c", code, str(path), *executions]
    read: dict[str, dict[str, Any]] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return read


def leftovers(web: int) -> set[str]:
    """The processes below this one and the ports it listens on, but for the HTTP server of the stage."""
    me = psutil.Process()
    processes = {f"process {child.pid}" for child in me.children(recursive=True) if child.pid != web}
    ports = {f"port {c.laddr.port}" for c in me.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    return processes | ports
