"""`m3nb.preview`: a form without a server, what it would send, and nothing of it in a notebook."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from form_cases import form_cases, url_cases
from nbclient import NotebookClient
from pages import FrontEnd, LocalPage, submit

import m3nb
from m3nb import InvalidSchemaError, ModelValidationError

GALLERY = Path(__file__).parent.parent / "notebooks" / "forms.ipynb"
VIEW = "application/vnd.jupyter.widget-view+json"
SCHEMA = {
    "type": "object",
    "properties": {
        "street": {"type": "string", "title": "Street", "minLength": 3},
        "size": {"type": "integer", "enum": [1, 2], "default": 2},
    },
    "required": ["street"],
}
STREET = {"street": {"text": "221B Baker Street"}, "size": {"choice": 0}}
CONTENT = {"street": "221B Baker Street", "size": 1}
REPLIES = ("accepted", "invalid", "refused")
BROKEN = {"type": "object", "properties": {"who": {"$ref": "#/$defs/nobody"}}}


def pressed(page: LocalPage, action: str, values: Any = None) -> dict[str, Any]:
    """What a page hears when a button is pressed."""
    (reply,) = (each for each in page.send(submit(page.view, action, values)) if each["kind"] in REPLIES)
    return reply


def test_an_error_is_at_its_field_and_nothing_is_kept_of_it() -> None:
    shown = m3nb.preview(SCHEMA, "Where to?")
    reply = pressed(LocalPage(shown), "accept", STREET | {"street": {"text": "1"}})
    assert (reply["kind"], [error["pointer"] for error in reply["errors"]]) == ("invalid", ["/street"])
    assert (shown.action, shown.content, shown.values) == (None, None, None)


def test_a_valid_answer_is_shown_as_json_and_the_form_stays() -> None:
    shown = m3nb.preview(SCHEMA, "Where to?")
    page = LocalPage(shown)
    before = page.view
    reply = pressed(page, "accept", STREET)
    head, _, text = reply["message"].partition("\n")
    assert head == "Would be sent: accept, with this content."
    assert json.loads(text) == CONTENT
    assert (shown.action, shown.content, shown.values) == ("accept", CONTENT, STREET)
    assert page.view == before
    assert before["round"]["requests"] == [shown.plan]
    assert (before["status"], before["server"], before["elapsed"]) == ("Preview", "nothing is sent from here", None)

    again = pressed(page, "accept", {"street": {"text": "Elsewhere"}})
    assert "Elsewhere" in again["message"]
    assert shown.content == {"street": "Elsewhere"}
    assert "decline" in pressed(page, "decline")["message"]
    assert (shown.action, shown.content, shown.values) == ("decline", None, None)


def test_a_message_that_is_repeated_is_answered_the_same() -> None:
    page = LocalPage(m3nb.preview(SCHEMA))
    replies = [each for each in page.send(submit(page.view, "accept", STREET), times=3) if each["kind"] != "summary"]
    assert len(replies) == 3
    assert [each["message"] for each in replies] == [replies[0]["message"]] * 3


def test_what_was_typed_is_in_no_trait_and_in_no_output() -> None:
    shown = m3nb.preview(SCHEMA)
    pressed(LocalPage(shown), "accept", STREET)
    assert "Baker" not in json.dumps(shown.widget.view)
    assert "Baker" not in repr(shown) + json.dumps(shown._repr_mimebundle_())


@pytest.mark.parametrize("case", form_cases(), ids=lambda case: case["id"])
def test_a_file_of_a_case_is_taken_as_it_is(case: dict[str, Any]) -> None:
    shown = m3nb.preview(case)
    assert (shown.error, shown.plan["message"], shown.plan["mode"]) == (None, case["message"], "form")
    assert shown.widget.view["round"]["requests"] == [shown.plan]


@pytest.mark.parametrize("case", url_cases(), ids=lambda case: case["id"])
def test_an_address_is_consented_to_only_where_it_may_be_opened(case: dict[str, Any]) -> None:
    shown = m3nb.preview(case)
    reply = pressed(LocalPage(shown), "accept")
    if case["expect"] == "refuse":
        assert (reply["kind"], shown.action) == ("invalid", None)
    else:
        assert "Would be sent: accept, without content" in reply["message"]
        assert (shown.action, shown.content) == ("accept", None)
    params = case["request"]["params"]
    for same in (m3nb.preview(url=params["url"]), m3nb.preview(params["url"], mode="url"), m3nb.preview(params)):
        assert same.plan["url"] == shown.plan["url"]


def test_a_request_is_taken_as_it_is() -> None:
    request = m3nb.FormElicitationRequest(request_key="k", message="Well?", requested_schema=SCHEMA)
    assert m3nb.preview(request).request is request
    assert m3nb.preview({"message": "Well?", "requestedSchema": SCHEMA}).plan["message"] == "Well?"
    assert m3nb.preview(SCHEMA, "Well?").plan == m3nb.preview(request).plan | {"key": "preview"}


def test_a_broken_schema_is_words_and_a_typed_error() -> None:
    shown = m3nb.preview(BROKEN)
    assert isinstance(shown.error, InvalidSchemaError)
    assert "#/$defs/nobody" in repr(shown)
    assert repr(shown).startswith("InvalidSchemaError: ")
    for use in ("plan", "widget"):
        with pytest.raises(InvalidSchemaError, match="nobody"):
            getattr(shown, use)


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        ((), {}, "a schema or a url"),
        ((SCHEMA,), {"url": "https://a.example"}, "one of the two"),
        (("https://a.example",), {}, "a schema is a dict, not str"),
        ((SCHEMA,), {"mode": "link"}, "form or url"),
        ((SCHEMA,), {"mode": "url"}, "url"),
        (({"requestedSchema": 5},), {}, "requested_schema"),
        ((SCHEMA, 5), {}, "message"),
    ],
)
def test_anything_else_is_an_error_that_names_it(arguments: Any, options: Any, named: str) -> None:
    with pytest.raises(ModelValidationError, match=named):
        m3nb.preview(*arguments, **options)


def test_cancelling_the_run_ends_the_preview_and_closing_frees_it() -> None:
    shown = m3nb.preview(SCHEMA)
    page = LocalPage(shown)
    page.send({"kind": "cancel_run"})
    assert page.view["state"] == "finished"
    shown.close()
    assert m3nb.preview(SCHEMA).widget.view["round"] is not None


@pytest.mark.parametrize("subshells", [True, False], ids=["subshells", "one shell"])
def test_in_a_kernel(subshells: bool, tmp_path: Path) -> None:
    """Submitted twice: refused at a field, then shown; a broken schema is a text, and later cells run."""
    cells = [
        f"import m3nb, time\nshown = m3nb.preview({SCHEMA!r}, 'Where to?')\nshown",
        "import asyncio\nwhile shown.action is None:\n    await asyncio.sleep(0.02)\nprint(shown.content['size'])",
        f"m3nb.preview({BROKEN!r})",
        "m3nb.preview(url='javascript:alert(1)').plan['openable']",
    ]
    front_end = FrontEnd(cells, tmp_path, answers=[{"street": {"text": "1"}}, STREET], subshells=subshells)
    front_end.execute()
    assert front_end.texts() == ["", "1\n", "", ""]
    assert [each["kind"] for each in front_end.received if each["kind"] in REPLIES] == ["invalid", "refused"]
    assert "InvalidSchemaError" in front_end.nb.cells[2].outputs[0]["data"]["text/plain"]
    assert front_end.nb.cells[3].outputs[0]["data"]["text/plain"] == "False"
    assert "221B" not in nbformat.writes(front_end.nb)


def outputs(path: Path) -> list[Any]:
    """What the cells of a notebook put out, run where it lies."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(path.parent)}}).execute()
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def test_the_notebook_of_forms_draws_every_case_once() -> None:
    found = outputs(GALLERY)
    named = [output.data["text/markdown"] for output in found if "text/markdown" in output.get("data", {})]
    assert sorted(named) == sorted(f"`{case['id']}`" for case in form_cases() + url_cases())
    assert sum(VIEW in output.get("data", {}) for output in found) == len(named) + 1
    assert not [output for output in found if output.output_type == "error" or output.get("name") == "stderr"]


def test_the_notebook_of_forms_without_the_cases_says_where_they_are(tmp_path: Path) -> None:
    found = outputs(Path(shutil.copy(GALLERY, tmp_path)))
    said = "".join(output.text for output in found if output.output_type == "stream")
    assert "clone of m3nb" in said
    assert "0 forms" in said
    assert sum(VIEW in output.get("data", {}) for output in found) == 1
