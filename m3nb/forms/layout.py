"""Which fields a request is drawn with, and which values the validator refuses for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from m3nb.elicitation import FormElicitationRequest
from m3nb.errors import ManagedInputValidationError
from m3nb.forms.shapes import Shape, form_of
from m3nb.validity import check_content

WHOLE = Shape("", "", "json", required=True, schema={"title": "Answer", "type": "object"})
"""The content as one JSON object, for a schema that lists no property and does not accept ``{}``."""


def layout(request: FormElicitationRequest) -> tuple[Mapping[str, Any], list[Shape]]:
    """The root schema's own keywords, and the shapes in property order; none when accepting is all there is to do."""
    root, shapes = form_of(request.requested_schema)
    if not shapes and refused(request, {}):
        return root, [WHOLE]
    return root, shapes


def refused(request: FormElicitationRequest, content: dict[str, Any]) -> set[str]:
    """The names in ``content`` whose value is not valid for the property alone; ``""`` for the content as a whole."""
    try:
        errors = check_content(request, content)
    except ManagedInputValidationError:  # the check took too long: nothing is known to be valid
        return {"", *content}
    tokens = (error["pointer"].split("/") for error in errors)
    return {token[1].replace("~1", "/").replace("~0", "~") if len(token) > 1 else "" for token in tokens}
