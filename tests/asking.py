"""Requests and rounds for tests, and the cases that real servers sent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from m3nb.elicitation import FormElicitationRequest, PendingElicitationRound, UrlElicitationRequest

CASES = [json.loads(path.read_text("utf-8")) for path in sorted((Path(__file__).parent / "cases").glob("*.json"))]


def form(schema: Any, key: str = "form") -> FormElicitationRequest:
    return FormElicitationRequest(request_key=key, message="?", requested_schema=schema)


def url(key: str = "url") -> UrlElicitationRequest:
    return UrlElicitationRequest(request_key=key, message="?", url="https://example.com")


def pending(*requests: FormElicitationRequest | UrlElicitationRequest) -> PendingElicitationRound:
    return PendingElicitationRound(
        round_id="r1",
        execution_id="e1",
        logical_operation_id="op",
        server="shipping",
        operation_kind="tool",
        operation_name="book_shipment",
        requests={request.request_key: request for request in requests},
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
    )
