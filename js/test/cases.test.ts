// Every handed case: what is drawn, what is sent untouched, and each valid answer put in by hand.

import { describe, expect, inject, test } from "vitest";
import type { Field, RawValue } from "../src/protocol";
import { toLocal } from "../src/times";
import { open, type Page, press as pressKey, type as typeInto } from "./page";

const cases = inject("cases");
const forms = cases.flatMap((one) => (one.plan.mode === "form" ? [{ ...one, plan: one.plan }] : []));
const urls = cases.flatMap((one) => (one.plan.mode === "url" ? [{ ...one, plan: one.plan }] : []));

const TYPES: Record<string, string> = {
  text: "text",
  email: "text",
  uri: "text",
  number: "text",
  integer: "text",
  date: "date",
  datetime: "datetime-local",
  time: "time",
  password: "password",
  textarea: "textarea",
  json: "textarea",
};

/** The element of a field, found by its label. */
function found(page: Page, field: Field, within?: Element): HTMLElement {
  return page.labelled<HTMLElement>(field.label, within);
}

function tick(group: HTMLElement, label: string): void {
  const box = [...group.querySelectorAll("label")].find((each) => each.textContent === label)!.control;
  if (!(box as HTMLInputElement).checked) box!.click();
}

function named(within: Element, name: string): HTMLButtonElement | undefined {
  return [...within.querySelectorAll("button")].find((each) => each.ariaLabel === name);
}

/** What holds other fields: opened or shut, items added, a branch chosen, then each field inside. */
function fillNested(page: Page, field: Field, element: HTMLElement, value: RawValue | undefined): void {
  if (field.control === "union") {
    fillLeaf({ ...field, control: "choice", options: field.branches! }, element, value?.branch === undefined ? value : { choice: value.branch });
    const { fields, field: only } = field.branches![value?.branch ?? -1] ?? {};
    const area = element.closest(".union")!.querySelector(".nest")!;
    for (const each of fields ?? []) fill(page, each, value!.fields![each.name], area);
    if (only) fill(page, only, value!.field, area);
  } else if (field.control === "object") {
    named(element, `${value?.fields ? "Add" : "Remove"} ${field.label}`)?.click();
    if (value?.null) press([...element.querySelectorAll("button")].find((each) => each.textContent === "null")!);
    if (value?.fields) for (const each of field.fields!) fill(page, each, value.fields[each.name], element);
  } else {
    const noun = field.item!.label || field.label;
    for (let remove; (remove = named(element, `Remove ${noun} 1`)); ) remove.click();
    const other = value?.null ? "null" : value && !value.items!.length ? "empty list" : null;
    if (other) press([...element.querySelectorAll("button")].find((each) => each.textContent === other)!);
    value?.items?.forEach((item, at) => {
      named(element, `Add ${noun}`)!.click();
      fill(page, { ...field.item!, label: `${noun} ${at + 1}` }, item, element);
    });
  }
}

function fill(page: Page, field: Field, value: RawValue | undefined, within?: Element): void {
  const element = found(page, field, within);
  if (/object|list|union/.test(field.control)) return fillNested(page, field, element, value);
  fillLeaf(field, element, value);
}

function fillLeaf(field: Field, element: HTMLElement, value: RawValue | undefined): void {
  if (element instanceof HTMLSelectElement)
    return typeInto(element, value && "choice" in value ? String(value.choice) : "-1");
  if (element instanceof HTMLFieldSetElement) return fillGroup(element, field, value);
  const box = element as HTMLInputElement;
  const other = (label: string) =>
    [...box.closest(".field")!.querySelectorAll("button")].find((each) => each.textContent === label)!;
  if (!value) return typeInto(box, "");
  if (value.json !== undefined) return typeInto(box, value.json);
  const special = value.null ? "null" : value.text === "" ? "empty text" : null;
  if (special) {
    typeInto(box, "");
    return press(other(special));
  }
  if (value.text === undefined) throw new Error("not typed: " + JSON.stringify(value));
  const timed = field.control === "datetime" || field.control === "time";
  typeInto(box, timed ? toLocal(value.text, field.control === "time")! : value.text);
}

function press(button: HTMLButtonElement): void {
  if (button.getAttribute("aria-pressed") !== "true") button.click();
}

function fillGroup(group: HTMLElement, field: Field, value: RawValue | undefined): void {
  const boxes = [...group.querySelectorAll("input")];
  if (field.control === "multi" || boxes.length === 1) {
    for (const box of boxes) if (box.checked) box.click();
    if (value && "choices" in value && !value.choices.length)
      return field.required ? tick(group, "None of these") : press([...group.querySelectorAll("button")][0]!);
    const chosen = !value ? [] : "choices" in value ? value.choices : "choice" in value ? [value.choice] : [];
    for (const at of chosen) tick(group, field.options[at]!.label);
    return;
  }
  if (!value) return field.required ? undefined : tick(group, "Unanswered");
  if ("null" in value) tick(group, "null");
  else if ("bool" in value) tick(group, value.bool ? "Yes" : "No");
  else if ("choice" in value) tick(group, field.options[value.choice]!.label);
}

/** Times as instants: the page writes them with its own offset. */
function comparable(fields: Field[], values: Record<string, RawValue>): Record<string, unknown> {
  const result: Record<string, unknown> = { ...values };
  for (const field of fields) {
    const value = values[field.name];
    if (field.control === "datetime" && value && "text" in value) result[field.name] = Date.parse(value.text);
  }
  return result;
}

test("there are cases", () => {
  expect(forms.length).toBeGreaterThan(50);
  expect(urls.length).toBeGreaterThan(5);
});

describe.each(forms)("$id", ({ plan, expect: expected, untouched, fills }) => {
  test("every field has its own control, bound to its label", async () => {
    const page = await open([plan]);
    for (const field of plan.fields) {
      const element = found(page, field);
      const kind = TYPES[field.control];
      if (kind) expect((element as HTMLInputElement).type, field.name).toBe(kind);
      else expect(element.matches("fieldset, select"), field.name).toBe(true);
      if (field.control === "json") expect(expected).toBe("render-fallback");
      if (field.description) expect(page.describedBy(element)).toContain(field.description);
    }
    if (!/object|list|union/.test(plan.fields.map((field) => field.control).join(" ")))
      expect(page.all(".field").length).toBe(plan.fields.length);
    expect(page.el.textContent).toContain(plan.message);
    expect(plan.fields.length === 0).toBe(expected === "confirm-only");
    expect(page.button(expected === "confirm-only" ? "Accept" : "Submit").matches(":disabled")).toBe(false);
    page.free();
  });

  test("untouched, it sends the valid defaults and nothing else", async () => {
    const page = await open([plan]);
    page.button(plan.fields.length ? "Submit" : "Accept").click();
    expect(page.submits()).toHaveLength(1);
    expect(page.submits()[0]!.responses).toEqual({ ask: { action: "accept", values: untouched } });
    page.free();
  });

  test.each(fills.map((values, at) => ({ values, at })))("what it starts with is sent as it came: $at", async ({ values }) => {
    const fields = plan.fields.map((field) => ({ ...field, initial: values[field.name] ?? null }));
    const page = await open([{ ...plan, fields }]);
    page.button(plan.fields.length ? "Submit" : "Accept").click();
    const required = plan.fields.filter((field) => field.control === "object" && field.required);
    const bare = Object.fromEntries(required.map((field) => [field.name, { fields: {} }]));
    expect(page.values()).toEqual({ ...bare, ...values });
    page.free();
  });

  test.each(fills.map((values, at) => ({ values, at })))("what is put in comes out: $at", async ({ values }) => {
    const page = await open([plan]);
    for (const field of plan.fields) fill(page, field, values[field.name]);
    page.button(plan.fields.length ? "Submit" : "Accept").click();
    expect(comparable(plan.fields, page.values())).toEqual(comparable(plan.fields, values));
    page.free();
  });
});

describe.each(urls)("$id", ({ plan, expect: expected }) => {
  test("the address is text, whole and in parts, and a link only when it may be opened", async () => {
    const page = await open([plan]);
    expect(page.one("code").textContent).toBe(plan.url.text);
    const links = page.all<HTMLAnchorElement>("a");
    expect(links).toHaveLength(plan.openable ? 1 : 0);
    expect(plan.openable).toBe(expected !== "refuse");
    for (const link of links) {
      expect(link.rel).toBe("noopener noreferrer");
      expect(link.target).toBe("_blank");
      expect(page.one("dl.address strong").textContent).toBe(new URL(link.href).host);
      expect(page.describedBy(link)).toContain(new URL(link.href).host);
    }
    const warnings = page.all(".warning").map((each) => each.textContent!);
    expect(warnings.length > 0).toBe(expected.startsWith("warn"));
    for (const warning of warnings) expect(page.describedBy(links[0]!)).toContain(warning);
    expect(page.all("button").map((each) => each.textContent)).toEqual([
      "Cancel run",
      ...(plan.openable ? ["Copy", "I opened it myself"] : []),
      "Decline",
      "Cancel",
    ]);
    // Nothing that a browser would load by itself, and no address outside text and the one link.
    const carriers = page.all("[src], [srcset], [style], [action], link, img, iframe, object");
    expect(carriers).toEqual([]);
    expect(page.all("[href]")).toEqual(links);
    expect(page.submits()).toEqual([]);
    page.free();
  });

  test.each(["Decline", "Cancel"])("%s sends no content", async (label) => {
    const page = await open([plan]);
    page.button(label).click();
    expect(page.submits()[0]!.responses).toEqual({ ask: { action: label.toLowerCase() } });
    page.free();
  });

  test.skipIf(!plan.openable)("the click that opens it is the consent, sent at once and once", async () => {
    const page = await open([plan]);
    const link = page.one("a");
    const opened: boolean[] = [];
    document.body.addEventListener("click", (event) => opened.push(!event.defaultPrevented));
    for (let i = 0; i < 2; i++) link.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
    expect(opened).toEqual([true, false]);
    expect(page.submits()).toHaveLength(1);
    expect(page.submits()[0]!.responses).toEqual({ ask: { action: "accept" } });
    page.free();
  });

  test.skipIf(plan.openable)("it cannot be accepted, and a reason is given", async () => {
    const page = await open([plan]);
    expect(page.one(".request .form-error").textContent).toBe(plan.blocked);
    pressKey(page.one(".round"), "Enter", { ctrlKey: true });
    expect(page.submits()).toEqual([]);
    page.free();
  });
});
