"""What real servers ask, through the store: every valid answer commits, every invalid one is refused with a pointer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from storing import HELD, KEY, create, form, question

from m3nb.elicitation import ElicitationResponse
from m3nb.errors import ManagedInputValidationError
from m3nb.storage import SQLiteExecutionStore
from m3nb.validity import check_schema

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


@pytest.fixture(scope="module")
def executions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SQLiteExecutionStore]:
    store = SQLiteExecutionStore(tmp_path_factory.mktemp("cases") / "store.sqlite")
    yield store
    store.close()


def test_there_are_cases() -> None:
    assert len(CASES) > 50


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(executions: SQLiteExecutionStore, path: Path) -> None:
    case: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    store = executions.managed_input_store
    request = form("it", case["requestedSchema"])
    check_schema(request)
    for index, content in enumerate(case["valid"]):
        ids = create(store, question(case["id"], f"valid {index}", request), round_index=index, round_limit=100)
        answer = {"it": ElicitationResponse(action="accept", content=content)}
        record = store.submit_responses(*ids, answer, response_idempotency_key=KEY, **HELD)
        assert record.status == "response_validated"
        assert json.dumps(record.responses["it"].content) == json.dumps(content)
        assert json.dumps(record.pending.requests["it"].requested_schema) == json.dumps(case["requestedSchema"])
        assert set(store.redacted_responses(*ids)) == {"it"}
    pending = question(case["id"], "invalid", request)
    ids = create(store, pending, round_index=99, round_limit=100)
    for content in case["invalid"]:
        # An answer that is no object can't even be constructed with checks; the store does not rely on that.
        answer = {"it": ElicitationResponse.model_construct(action="accept", content=content)}
        with pytest.raises(ManagedInputValidationError) as caught:
            store.submit_responses(*ids, answer, response_idempotency_key=KEY, **HELD)
        errors = caught.value.details["errors"]
        assert errors
        for error in errors:
            assert error["request_key"] == "it"
            assert error["pointer"] == "" or error["pointer"].startswith("/")
            assert error["keyword"]
            assert error["message"]
        record = store.get_round(*ids)
        assert (record.status, record.responses) == ("pending", None)
    store.submit_responses(*ids, {"it": ElicitationResponse(action="decline")}, response_idempotency_key=KEY, **HELD)
    assert {record.pending.execution_id for record in store.list_rounds(case["id"])} == {case["id"]}
