"""Where every ``$ref`` of a schema leads: somewhere, without the network, and never round in a circle.

Source: JSON Schema 2020-12 core sections 8.2.3 and 9.4.1 ("Guarding Against Infinite Recursion"). A tree type that
refers to itself below a property is fine; a reference that comes back to itself for the same value is not.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from m3nb.validity.schemas import IN_PLACE, SchemaProblem, SchemaReport, children, dialect_of

_KEYWORDS = {"2019-09": ("$ref", "$recursiveRef"), "2020-12": ("$ref", "$dynamicRef")}
_ALONE = ("04", "06", "07")
"""Dialects in which nothing beside ``$ref`` counts."""

Edge = tuple[int, str]
"""The id of a schema that looks at the same value, and the reference that leads there ("" for a subschema)."""


@cache
def specification(dialect: str) -> Any:
    """The ``referencing`` specification of a dialect."""
    from referencing import jsonschema

    return {
        "04": jsonschema.DRAFT4,
        "06": jsonschema.DRAFT6,
        "07": jsonschema.DRAFT7,
        "2019-09": jsonschema.DRAFT201909,
        "2020-12": jsonschema.DRAFT202012,
    }[dialect]


@cache
def unresolvable() -> tuple[type[Exception], ...]:
    """What ``referencing`` raises for a reference or an ``$id`` that leads nowhere or is none."""
    from referencing.exceptions import Unresolvable

    return (Unresolvable, LookupError, ValueError, TypeError, AttributeError)


@cache
def _known() -> Any:
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    return REGISTRY.crawl()


def root_resolver(schema: Any, dialect: str) -> Any:
    """A resolver that knows this schema and the metaschemas, and fetches nothing."""
    return _known().resolver_with_root(specification(dialect).create_resource(schema))


def check_references(schema: dict[str, Any], report: SchemaReport) -> None:
    """Follow every reference; what they reach is added to the report.

    Raises `SchemaProblem`, which names the reference: it leads outside or nowhere, to something that is no valid
    schema, or in a circle.
    """
    dialect = dialect_of(schema)
    edges: dict[int, list[Edge]] = {}
    try:
        root = crawled_resolver(schema, dialect)
    except unresolvable() as error:
        raise SchemaProblem(f"an $id of the schema is no URI: {error}") from None
    stack = [("", schema, root, dialect)]
    while stack:
        pointer, node, resolver, inherited = stack.pop()
        if id(node) in edges:
            continue
        spoken = dialect_of(node, inherited)
        out = edges[id(node)] = []
        for keyword in _KEYWORDS.get(spoken, ("$ref",)):
            if keyword in node:
                target = _follow(resolver, keyword, node[keyword], f"{pointer}/{keyword}")
                if isinstance(target.contents, dict):
                    out.append((id(target.contents), node[keyword]))
                    stack.append((f"{pointer}/{keyword}", target.contents, target.resolver, spoken))
        if id(node) not in report.seen:
            report.add(node, pointer)
        alone = "$ref" in node and spoken in _ALONE
        for step, child, keyword, child_dialect in children(node, pointer, inherited):
            if isinstance(child, dict):
                stack.append((step, child, inside(resolver, child, child_dialect), child_dialect))
                if keyword in IN_PLACE and not alone:
                    out.append((id(child), ""))
    _refuse_circles(edges)


def crawled_resolver(schema: Any, dialect: str) -> Any:
    """Like `root_resolver`, with every ``$id`` and anchor already found: looking each up alone is quadratic."""
    resource = specification(dialect).create_resource(schema)
    uri = resource.id() or ""
    return _known().with_resource(uri, resource).crawl().resolver(uri)


def inside(resolver: Any, schema: Any, dialect: str) -> Any:
    """The resolver for a subschema, which may have an ``$id`` of its own."""
    if isinstance(schema, dict) and ("$id" in schema or "id" in schema):
        return resolver.in_subresource(specification(dialect).create_resource(schema))
    return resolver


def _follow(resolver: Any, keyword: str, reference: Any, pointer: str) -> Any:
    from referencing.jsonschema import lookup_recursive_ref

    try:
        target = lookup_recursive_ref(resolver) if keyword == "$recursiveRef" else resolver.lookup(reference)
    except unresolvable():
        nowhere = isinstance(reference, str) and reference.startswith("#")
        where = "leads nowhere in this schema" if nowhere else "leads outside of this schema, and nothing is fetched"
        raise SchemaProblem(f"{keyword} {reference!r} {where}", pointer) from None
    if not isinstance(target.contents, (dict, bool)):
        raise SchemaProblem(f"{keyword} {reference!r} leads to something that is no schema", pointer)
    return target


def _refuse_circles(edges: dict[int, list[Edge]]) -> None:
    done: set[int] = set()
    for start in edges:
        if start in done:
            continue
        path: dict[int, str] = {start: ""}
        stack = [(start, iter(edges[start]))]
        while stack:
            node, rest = stack[-1]
            for target, reference in rest:
                if target in path:
                    labels = list(path.values())[list(path).index(target) + 1 :]
                    name = reference or next(filter(None, reversed(labels)), "")
                    raise SchemaProblem(f"$ref {name!r} comes back to itself without going deeper into the answer")
                if target not in done:
                    path[target] = reference
                    stack.append((target, iter(edges[target])))
                    break
            else:
                stack.pop()
                path.pop(node)
                done.add(node)
