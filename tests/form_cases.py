"""The handed cases as requests, and as plans for the page's own tests.

``python tests/form_cases.py FILE`` writes the plans; vitest reads the file that ``M3NB_PLANS`` names.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from m3nb.elicitation import FormElicitationRequest, UrlElicitationRequest
from m3nb.forms import compile_form, to_values

CASES = Path(__file__).parent / "cases"


def form_cases() -> list[dict[str, Any]]:
    """Every case with a schema, in order of their files."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(CASES.glob("*.json"))]


def url_cases() -> list[dict[str, Any]]:
    """Every case that is one URL request."""
    cases = (json.loads(path.read_text(encoding="utf-8")) for path in sorted((CASES / "extra").glob("*.json")))
    return [case for case in cases if case.get("kind") == "url"]


def form(schema: dict[str, Any], message: str = "Please fill in", key: str = "ask") -> FormElicitationRequest:
    return FormElicitationRequest(request_key=key, message=message, requested_schema=schema)


def form_of_case(case: dict[str, Any]) -> FormElicitationRequest:
    return form(case["requestedSchema"], case["message"])


def url(address: str, message: str = "Please visit") -> UrlElicitationRequest:
    return UrlElicitationRequest(request_key="ask", message=message, url=address)


def plans() -> list[dict[str, Any]]:
    """For the page: each plan, what it must send untouched, and the values of each valid content that fits it."""
    found = []
    for case in form_cases():
        request = form_of_case(case)
        fills = [to_values(request, content) for content in case["valid"]]
        found.append(
            {
                "id": case["id"],
                "expect": case["expect"],
                "plan": compile_form(request),
                "untouched": to_values(request, case.get("prefill", {}))[0],
                "fills": [values for values, left in fills if not left],
            }
        )
    for case in url_cases():
        params = case["request"]["params"]
        plan = compile_form(url(params["url"], params["message"]))
        found.append({"id": case["id"], "expect": case["expect"], "plan": plan, "untouched": None, "fills": []})
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(plans(), ensure_ascii=False), encoding="utf-8")
