// How a person fills in a form: states, errors, keys, and what must never happen.

import { describe, expect, test } from "vitest";
import type { FieldError, Plan } from "../src/protocol";
import { field, form, open, Page, press, round, type, view } from "./page";

const error = (pointer: string, message: string): FieldError => ({
  request_key: "ask",
  pointer,
  keyword: "x",
  message,
});

async function refusedWith(plan: Plan, errors: FieldError[]): Promise<Page> {
  const page = await open([plan]);
  page.button("Submit").click();
  await page.settled();
  const { id } = page.submits().at(-1)!;
  page.say({ kind: "invalid", id, round_id: "r1", errors, message: `${errors.length} answers need another look.` });
  return page;
}

describe("values", () => {
  test("cleared is omitted, also when there was a default", async () => {
    const page = await open([form([field({ name: "a", initial: { text: "x" } }), field({ name: "b" })])]);
    type(page.labelled("a"), "");
    type(page.labelled("b"), "y");
    type(page.labelled("b"), "");
    page.button("Submit").click();
    expect(page.values()).toEqual({});
  });

  test("empty text and null are sent when they are chosen, and typing takes that back", async () => {
    const page = await open([form([field({ name: "a", empty: true, nullable: true })])]);
    const [empty, none] = [page.button("empty text"), page.button("null")];
    const sends = async (value: unknown) => {
      page.button("Submit").click();
      await page.settled();
      expect(page.values()).toEqual(value);
      page.say({ kind: "invalid", id: page.submits().at(-1)!.id, round_id: "r1", errors: [], message: "" });
    };
    empty.click();
    await sends({ a: { text: "" } });
    none.click();
    expect(empty.getAttribute("aria-pressed")).toBe("false");
    await sends({ a: { null: true } });
    type(page.labelled("a"), "z");
    expect(none.getAttribute("aria-pressed")).toBe("false");
    expect(none.closest<HTMLElement>(".others")!.hidden).toBe(true);
    await sends({ a: { text: "z" } });
    type(page.labelled("a"), "");
    expect(none.closest<HTMLElement>(".others")!.hidden).toBe(false);
    none.click();
    none.click();
    await sends({});
  });

  test("an optional boolean has three states, a required one two and none chosen", async () => {
    const page = await open([
      form([
        field({ name: "maybe", control: "boolean", initial: { bool: true } }),
        field({ name: "must", control: "boolean", required: true }),
      ]),
    ]);
    const labels = (name: string) =>
      [...page.labelled<HTMLElement>(name).querySelectorAll("label")].map((each) => each.textContent);
    expect(labels("maybe")).toEqual(["Unanswered", "Yes", "No"]);
    expect(labels("must")).toEqual(["Yes", "No"]);
    expect(page.labelled<HTMLElement>("must").querySelectorAll(":checked")).toHaveLength(0);
    const [unanswered] = page.labelled<HTMLElement>("maybe").querySelectorAll("input");
    unanswered!.click();
    page.labelled<HTMLElement>("must").querySelectorAll("input")[1]!.click();
    page.button("Submit").click();
    expect(page.values()).toEqual({ must: { bool: false } });
  });

  test("one allowed value is a box to tick, never ticked beforehand, and can be unticked", async () => {
    const options = [{ label: "production", description: null }];
    const page = await open([form([field({ name: "env", control: "choice", required: true, options })])]);
    const box = page.one<HTMLInputElement>("input[type=checkbox]");
    expect(box.checked).toBe(false);
    box.click();
    box.click();
    page.button("Submit").click();
    expect(page.values()).toEqual({});
  });

  test("more than six options are a list in which nothing is chosen at first", async () => {
    const options = [..."abcdefg"].map((label) => ({ label, description: null }));
    const page = await open([
      form([
        field({ name: "one", control: "choice", required: true, options }),
        field({ name: "two", control: "choice", options, initial: { choice: 4 }, nullable: true }),
      ]),
    ]);
    const [one, two] = [page.labelled<HTMLSelectElement>("one"), page.labelled<HTMLSelectElement>("two")];
    expect(one.selectedOptions[0]!.textContent).toBe("Choose…");
    expect(two.selectedOptions[0]!.textContent).toBe("e");
    type(two, "7");
    expect(two.selectedOptions[0]!.textContent).toBe("null");
    page.button("Submit").click();
    expect(page.values()).toEqual({ two: { null: true } });
  });

  test("a required list without a lower bound can be answered with none", async () => {
    const options = ["x", "y"].map((label) => ({ label, description: null }));
    const page = await open([form([field({ name: "l", control: "multi", required: true, empty: true, options })])]);
    const [x, , none] = page.all<HTMLInputElement>("input");
    x!.click();
    none!.click();
    expect(x!.checked).toBe(false);
    x!.click();
    expect(none!.checked).toBe(false);
    none!.click();
    page.button("Submit").click();
    expect(page.values()).toEqual({ l: { choices: [] } });
  });

  test("an optional list can be sent empty, and a ticked box takes that back", async () => {
    const options = ["x", "y"].map((label) => ({ label, description: null }));
    const page = await open([
      form([field({ name: "l", control: "multi", empty: true, options, initial: { choices: [1] } })]),
    ]);
    const [x, y] = page.all<HTMLInputElement>("input");
    y!.click();
    page.button("empty list").click();
    x!.click();
    expect(page.button("empty list").getAttribute("aria-pressed")).toBe("false");
    x!.click();
    page.button("empty list").click();
    page.button("Submit").click();
    expect(page.values()).toEqual({ l: { choices: [] } });
  });

  test("a date and time is sent with seconds and the offset of that day, and says so before", async () => {
    const page = await open([form([field({ name: "at", control: "datetime" })])]);
    type(page.labelled("at"), "2026-07-01T09:30");
    expect(page.describedBy(page.labelled("at"))).toBe("Europe/Berlin, sent as 2026-07-01T09:30:00+02:00");
    type(page.labelled("at"), "2026-12-01T09:30");
    page.button("Submit").click();
    expect(page.values()).toEqual({ at: { text: "2026-12-01T09:30:00+01:00" } });
  });

  test("a default time is shown in the page's zone and sent as it came while it is untouched", async () => {
    const page = await open([form([field({ name: "at", control: "datetime", initial: { text: "2026-07-01T00:30:00Z" } })])]);
    expect(page.labelled("at").value).toBe("2026-07-01T02:30");
    page.button("Submit").click();
    expect(page.values()).toEqual({ at: { text: "2026-07-01T00:30:00Z" } });
  });

  test("a default that the picker cannot show exactly is a line of text", async () => {
    const text = "2026-07-01T00:30:00.123456Z";
    const page = await open([form([field({ name: "at", control: "datetime", initial: { text } })])]);
    expect(page.labelled("at").value).toBe(text);
    expect(page.labelled("at").type).toBe("text");
  });

  test("a property called __proto__ is sent like any other", async () => {
    const page = await open([form([field({ name: "__proto__" }), field({ name: "constructor" })])]);
    type(page.labelled("__proto__"), "x");
    page.button("Submit").click();
    expect(JSON.stringify(page.values())).toBe('{"__proto__":{"text":"x"}}');
  });
});

describe("errors", () => {
  const plan = form([
    field({ name: "name", required: true, hint: "At most 5 characters" }),
    field({ name: "size", control: "boolean", required: true }),
    field({ name: "address", control: "json" }),
  ]);

  test("stand at their fields, bound to them, and the first one has the focus", async () => {
    const page = await refusedWith(plan, [
      error("/size", "is required"),
      error("/address/street", "must be text"),
      error("", "must have at most 2 fields"),
    ]);
    const [name, size, address] = ["name", "size", "address"].map((label) => page.labelled<HTMLElement>(label));
    expect(name!.hasAttribute("aria-invalid")).toBe(false);
    expect(size!.getAttribute("aria-invalid")).toBe("true");
    expect(page.describedBy(size!)).toBe("is required");
    expect(address!.getAttribute("aria-invalid")).toBe("true");
    expect(page.describedBy(address!)).toBe("/street: must be text");
    expect(page.one(".all > .form-error").textContent).toBe("must have at most 2 fields");
    expect(document.activeElement).toBe(size!.querySelector("input"));
    expect(page.said).toBe("3 answers need another look.");
    size!.querySelector("input")!.click();
    expect(size!.hasAttribute("aria-invalid")).toBe(false);
    expect(page.describedBy(size!)).toBe("");
  });

  test("of one field go when the next answer is sent", async () => {
    const page = await refusedWith(plan, [error("/name", "is required")]);
    expect(page.describedBy(page.labelled("name"))).toBe("At most 5 characters | is required");
    page.button("Submit").click();
    expect(page.labelled("name").hasAttribute("aria-invalid")).toBe(false);
  });

  test("without a field stand at the form, which takes the focus", async () => {
    const page = await refusedWith(plan, [error("", "the schema is too costly for this answer")]);
    expect(document.activeElement).toBe(page.one(".all > .form-error"));
  });

  test("for another question of the round stand at that question", async () => {
    const page = await open([form([field({ name: "x" })]), form([field({ name: "x", label: "second" })], { key: "b" })]);
    page.button("Submit").click();
    await page.settled();
    const { id } = page.submits()[0]!;
    const errors = [{ ...error("/x", "is required"), request_key: "b" }];
    page.say({ kind: "invalid", id, round_id: "r1", errors, message: "" });
    expect(page.labelled("x").hasAttribute("aria-invalid")).toBe(false);
    expect(document.activeElement).toBe(page.labelled("second"));
  });
});

describe("drawing", () => {
  test("a changed view of the same round wipes nothing and keeps the focus", async () => {
    const page = await open([form([field({ name: "name" })])]);
    const box = page.labelled("name");
    type(box, "Ada");
    page.show(view(round([form([field({ name: "name" })])]), { status: "Still waiting", elapsed: 60 }));
    expect(page.labelled("name")).toBe(box);
    expect(box.value).toBe("Ada");
    expect(document.activeElement).toBe(box);
    expect(page.one(".header").textContent).toContain("Still waiting");
  });

  test("the next round takes the focus only when the last one had it", async () => {
    const page = await open([form([field({ name: "name" })])]);
    page.show(view(round([form([field({ name: "other" })])], "r2")));
    expect(document.activeElement).toBe(document.body);
    page.labelled("other").focus();
    page.show(view(round([form([field({ name: "third" })])], "r3")));
    expect(document.activeElement).toBe(page.labelled("third"));
  });

  test("text of a server stays text", async () => {
    const nasty = '<img src=x onerror="alert(1)"><b>bold</b>';
    const options = [nasty, "b"].map((label) => ({ label, description: nasty }));
    const page = await open([
      form(
        [
          field({ name: nasty, label: nasty, description: nasty, hint: nasty, attributes: { placeholder: nasty } }),
          field({ name: "c", control: "choice", options }),
          field({ name: "s", control: "choice", options: [...options, ...options, ...options, ...options] }),
        ],
        { message: nasty, title: nasty, description: nasty, hints: [nasty], blocked: nasty },
      ),
    ]);
    page.show(view(round([form([])], "r1"), { server: nasty, operation: nasty, status: nasty, error: nasty }));
    expect(page.all("img, b, script")).toHaveLength(0);
    expect(page.el.textContent!.split(nasty).length).toBeGreaterThan(10);
  });

  test("an accept that cannot be given is not offered, and the reason is said", async () => {
    const page = await open([form([field({ name: "a" })], { blocked: "“b” is required" })]);
    expect(page.button("Submit").disabled).toBe(true);
    expect(page.el.textContent).toContain("“b” is required");
    press(page.labelled("a"), "Enter");
    expect(page.submits()).toHaveLength(0);
    page.button("Decline").click();
    expect(page.submits()[0]!.responses).toEqual({ ask: { action: "decline" } });
  });

  test("a question that names its only field is not asked twice", async () => {
    const page = await open([form([field({ name: "value", label: "Your name?" })], { message: "Your name?" })]);
    expect(page.el.textContent!.split("Your name?")).toHaveLength(2);
  });
});

describe("several questions in one round", () => {
  test("each has its own action, and one button sends them all", async () => {
    const page = await open([
      form([field({ name: "a" })], { key: "one" }),
      form([field({ name: "b" })], { key: "two" }),
      form([], { key: "three" }),
    ]);
    type(page.labelled("a"), "x");
    const press = (at: number, label: string) =>
      [...page.all(".one")[at]!.querySelectorAll("button")].find((each) => each.textContent === label)!.click();
    press(0, "Decline");
    expect(page.labelled("a").closest("[hidden]")).not.toBeNull();
    press(0, "Answer");
    expect(page.labelled("a").closest("[hidden]")).toBeNull();
    press(1, "Decline");
    press(2, "Cancel");
    page.button("Submit").click();
    expect(page.submits()[0]!.responses).toEqual({
      one: { action: "accept", values: { a: { text: "x" } } },
      two: { action: "decline" },
      three: { action: "cancel" },
    });
  });
});

describe("keys", () => {
  const plan = form([field({ name: "line" }), field({ name: "long", control: "textarea" })]);

  test("stay inside the widget", async () => {
    const page = await open([plan]);
    const heard: string[] = [];
    document.body.addEventListener("keydown", (event) => heard.push(event.key), { once: true });
    press(page.labelled("line"), "d");
    press(page.button("Submit"), "Enter", { shiftKey: true });
    expect(heard).toEqual([]);
  });

  test("Enter sends from a line, not from a text area and not while a word is composed", async () => {
    const page = await open([plan]);
    press(page.labelled("long"), "Enter");
    press(page.labelled("line"), "Enter", { isComposing: true });
    press(page.labelled("line"), "Enter", { shiftKey: true });
    expect(page.submits()).toHaveLength(0);
    press(page.labelled("line"), "Enter");
    expect(page.submits()).toHaveLength(1);
  });

  test.each([{ ctrlKey: true }, { metaKey: true }])("%o and Enter sends from everywhere", async (held) => {
    const page = await open([plan]);
    press(page.labelled("long"), "Enter", held);
    expect(page.submits()).toHaveLength(1);
  });

  test("Escape asks before it cancels, and a second one goes back to the field", async () => {
    const page = await open([plan]);
    page.labelled("line").focus();
    press(page.labelled("line"), "Escape");
    expect(document.activeElement).toBe(page.button("Keep editing"));
    press(page.button("Keep editing"), "Escape");
    expect(document.activeElement).toBe(page.labelled("line"));
    expect(page.submits()).toHaveLength(0);
    press(page.labelled("line"), "Escape");
    page.button("Yes, cancel").click();
    expect(page.submits()[0]!.responses).toEqual({ ask: { action: "cancel" } });
  });

  test("Cancel and Decline ask only when something was typed", async () => {
    const page = await open([plan]);
    page.button("Cancel").click();
    expect(page.submits()).toHaveLength(1);
    const other = await open([plan]);
    type(other.labelled("line"), "x");
    other.button("Decline").click();
    expect(other.submits()).toHaveLength(0);
    other.button("Yes, decline").click();
    expect(other.submits()[0]!.responses).toEqual({ ask: { action: "decline" } });
  });
});
