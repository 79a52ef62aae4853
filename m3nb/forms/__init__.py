"""A schema compiled to a drawing plan, and what was typed turned back into content.

Python decides, the page draws: a plan is plain JSON, holds no answer, and the page that draws it knows no JSON Schema.

Rules, one each:

- An untouched form sends every valid default and nothing else. A default that its own schema refuses is no default.
- Cleared means omitted. ``""``, ``[]`` and ``null`` are sent only when they are chosen on purpose or are the default.
- A required boolean is a question with two answers, an optional one has three states.
- A choice is sent by its place in the list and keeps its JSON type.
- Numbers travel as text. An integer field sends an ``int`` ("1.0" is 1); a number that a double cannot carry as it
  was typed is an error, never rounded.
- A string is drawn as a text area when its ``maxLength`` is over 200, its ``contentMediaType`` is ``text/...``, its
  ``format`` is ``textarea``, ``multiline`` or ``markdown``, or its default has a line break.
- A string is masked when its ``format`` is ``password``, it is ``writeOnly``, or its name says so.
- What has no control of its own is written as JSON, for that field only.
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
