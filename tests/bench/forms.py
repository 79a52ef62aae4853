"""How fast a form stands on the page and how many bytes draw it, beside react-jsonschema-form.

    python tests/bench/forms.py [--times 15] [--folder FOLDER] [--check]

Both are built by the esbuild of ``js/`` with the same options and draw the same schemas, by turns, in one run of
Chromium, to the layout of the finished form. Measured as a notebook does it, where anywidget imports the text of the
module anew for each form, and, without a limit, the mount alone in a page that has drawn such forms before. Ours draws
a plan that Python made, which is its way; making it is printed too. Theirs is @rjsf/core with @rjsf/validator-ajv8 and
React, installed by npm into a folder of its own (``--folder`` keeps it). Without the registry that part is left out.
``--check`` exits with 1 below a limit.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from m3nb import FormElicitationRequest
from m3nb.forms import compile_form

ROOT = Path(__file__).parent.parent.parent
STATIC = ROOT / "m3nb" / "static"
ESBUILD = ROOT / "js" / "node_modules" / ".bin" / "esbuild"
OPTIONS = (
    "--bundle",
    "--minify",
    "--target=es2022",
    "--legal-comments=none",
    "--define:process.env.NODE_ENV='production'",
)
PACKAGES = (
    "@rjsf/core@6.11.1",
    "@rjsf/utils@6.11.1",
    "@rjsf/validator-ajv8@6.11.1",
    "react@19.3.1",
    "react-dom@19.3.1",
)
SIZES = (10, 100)
FASTER = 3.0
SMALLER = 20.0

THEIRS = """
import Form from "@rjsf/core";
import validator from "@rjsf/validator-ajv8";
import {createElement} from "react";
import {flushSync} from "react-dom";
import {createRoot} from "react-dom/client";
export function mount(element, schema) {
  const root = createRoot(element);
  flushSync(() => root.render(createElement(Form, {schema, validator})));
  return () => root.unmount();
}
"""
OURS = """
import execution from "MODULE";
export function mount(element, view) {
  const model = {get: () => view, on() {}, off() {}, send() {}};
  return execution.render({model, el: element});
}
"""
MOUNT = """async ([code, given]) => {
  const element = document.createElement("div");
  document.body.append(element);
  const began = performance.now();
  const address = URL.createObjectURL(new Blob([code], {type: "text/javascript"}));
  const {mount} = await import(address);
  const free = mount(element, given);
  element.offsetHeight;
  const whole = performance.now() - began;
  const controls = element.querySelectorAll("input, select, textarea").length;
  free();
  for (let nth = 0; nth < 3; nth++) mount(element, given)();
  const again = performance.now();
  const last = mount(element, given);
  element.offsetHeight;
  const alone = performance.now() - again;
  last();
  element.remove();
  URL.revokeObjectURL(address);
  return [whole, alone, controls];
}"""


def schema(fields: int) -> dict[str, Any]:
    """An object with this many fields of the kinds that servers send."""
    kinds: list[dict[str, Any]] = [
        {"type": "string", "minLength": 2},
        {"type": "integer", "minimum": 0, "maximum": 99, "default": 7},
        {"type": "boolean", "default": False},
        {"type": "string", "enum": [f"choice {nth}" for nth in range(8)]},
        {"type": "string", "format": "email", "description": "Where the answer goes."},
    ]
    properties = {f"field{nth}": kinds[nth % len(kinds)] | {"title": f"Field {nth}"} for nth in range(fields)}
    return {"type": "object", "properties": properties, "required": ["field0", "field1"]}


def view(given: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """What Python publishes for a schema, and the milliseconds it takes to make."""
    request = FormElicitationRequest(request_key="ask", message="Please fill in", requested_schema=given)
    compile_form(request)  # loads the validator, and keeps the schema
    began = time.perf_counter()
    plan = compile_form(request)
    took = (time.perf_counter() - began) * 1000
    round_ = {"round_id": "r", "index": 1, "limit": None, "deadline": None, "requests": [plan], "arguments": None}
    words = {"state": "waiting", "status": "Waiting", "outcome": None, "error": None, "server": "a", "operation": "b"}
    return {**words, "round": round_, "done": [], "execution_id": "e", "elapsed": 0}, took


def built(source: Path) -> str:
    """A bundle as the text of a module."""
    command = [str(ESBUILD), str(source), *OPTIONS, "--format=esm"]
    return subprocess.run(command, cwd=source.parent, check=True, capture_output=True, text=True).stdout


def install(folder: Path) -> bool:
    """Get what is compared with. False, and the command, when the registry cannot be reached."""
    if (folder / "node_modules" / "@rjsf" / "core").exists():
        return True
    (folder / "package.json").write_text('{"private": true}', encoding="utf-8")
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder), *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"left out: {PACKAGES[0]} could not be installed, which is:\n  {' '.join(command)}\n{done.stderr[-300:]}")
    return done.returncode == 0


def measured(page: Page, given: dict[str, Any], scripts: dict[str, str], times: int) -> dict[str, tuple[float, float]]:
    """Median milliseconds with the module and without it, by turns; the first of each is left out."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in scripts}
    for _ in range(times + 1):
        for name, code in scripts.items():
            whole, alone, controls = page.evaluate(MOUNT, [code, given[name]])
            assert controls >= min(SIZES), (name, controls)
            took[name].append((whole, alone))
    return {
        name: (statistics.median(each[0] for each in values[1:]), statistics.median(each[1] for each in values[1:]))
        for name, values in took.items()
    }


def compare(folder: Path, times: int) -> dict[str, float]:
    """The ratios that have a limit, theirs by ours. Empty when there is nothing to compare with."""
    sources = {"ours": OURS.replace("MODULE", str(STATIC / "execution.js"))}
    if install(folder):
        sources["theirs"] = THEIRS
    scripts = {}
    for name, text in sources.items():
        path = folder / f"{name}.js"
        path.write_text(text, encoding="utf-8")
        scripts[name] = built(path)
    style = (STATIC / "execution.css").read_text(encoding="utf-8")
    sizes = {name: len(text.encode()) for name, text in scripts.items()}
    ratios = {}
    print(f"bytes: ours {sizes['ours']:,}, and {len(style.encode()):,} of CSS")
    if "theirs" in sizes:
        ratios["bytes"] = sizes["theirs"] / sizes["ours"]
        print(f"bytes: theirs {sizes['theirs']:,}, without CSS: {ratios['bytes']:.1f} times ours")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    flags = ["--headless", "--no-sandbox", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page()
        page.set_content("<!doctype html><body></body>")
        page.add_style_tag(content=style)
        for fields in SIZES:
            drawn, planned = view(schema(fields))
            took = measured(page, {"ours": drawn, "theirs": schema(fields)}, scripts, times)
            for nth, what in enumerate((f"{fields} fields", f"{fields} fields, mount alone")):
                said = f"{what}: ours {took['ours'][nth]:.1f} ms"
                if "theirs" in took:
                    ratio = took["theirs"][nth] / took["ours"][nth]
                    said += f", theirs {took['theirs'][nth]:.1f} ms: {ratio:.1f} times ours"
                    if nth == 0:
                        ratios[what] = ratio
                print(said)
            print(f"{fields} fields, the plan in Python: {planned:.1f} ms")
        browser.close()
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=15, help="mounts of each form")
    parser.add_argument("--folder", type=Path, help="where what is compared with is kept")
    parser.add_argument(
        "--check", action="store_true", help=f"exit with 1 below {FASTER:g} times faster, {SMALLER:g} smaller"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        ratios = compare(folder, options.times)
    missed = [name for name, ratio in ratios.items() if ratio < (SMALLER if name == "bytes" else FASTER)]
    for name in missed:
        print(f"below the limit: {name}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
