"""A schema compiled to a drawing plan, and what was typed turned back into content.

Python decides, the page draws: a plan is plain JSON, holds no answer, and the page that draws it knows no JSON Schema.

Rules, one each:

- An untouched form sends every valid default and nothing else. A default that its own schema refuses is no default.
- An object's own default counts as a whole, the root's too. Without a valid one, an object is what the defaults in it
  make: a required one always (``{}`` at least), an optional one where these alone are valid.
- Cleared means omitted. ``""``, ``[]`` and ``null`` are sent only when they are chosen on purpose or are the default.
- A required boolean is a question with two answers, an optional one has three states.
- A choice is sent by its place in the list and keeps its JSON type.
- Numbers travel as text. An integer field sends an ``int`` ("1.0" is 1); a number that a double cannot carry as it
  was typed is an error, never rounded.
- A string is drawn as a text area when its ``maxLength`` is over 200, its ``contentMediaType`` is ``text/...``, its
  ``format`` is ``textarea``, ``multiline`` or ``markdown``, or its default has a line break.
- A string is masked when its ``format`` is ``password``, it is ``writeOnly``, or its name says so.
- ``anyOf: [T, null]`` and ``type: [T, "null"]`` are a T that may also be null, at any depth.
- Objects, lists and unions are drawn within one another, eight deep; those that contain themselves, four deep.
- A list sends its items as they stand; one that is not filled in is an error at that item, never left out. ``[]`` is
  sent on purpose only.
- A union of objects, or of values of differing types, is one choice; what is sent is the chosen branch. A constant that
  tells the branches apart is not drawn and is sent. A union of one type is typed like a plain value.
- ``if``/``then``/``else``, ``dependentRequired`` and ``dependentSchemas`` add fields, at the root and in its objects,
  for what is answered; values are read by the fields they then have. In lists and unions such fields are always there.
- A read-only field shows its valid default and sends it; without one, a required field can be edited all the same.
- Accept is blocked, with the way to the field, while a required field has no valid value, at any depth.
- What has no control of its own, and what a valid default has no place in, is written as JSON, for that field only.
- No schema takes more than about a second: beyond the bounds of `m3nb.forms.building` fields are written as JSON.
"""

from m3nb.forms.placing import RawValue
from m3nb.forms.plan import BranchPlan, Field, FormPlan, Option, UrlPlan, compile_form, fields_for
from m3nb.forms.telling import told
from m3nb.forms.values import read_values, to_values

__all__ = [
    "BranchPlan",
    "Field",
    "FormPlan",
    "Option",
    "RawValue",
    "UrlPlan",
    "compile_form",
    "fields_for",
    "read_values",
    "to_values",
    "told",
]
