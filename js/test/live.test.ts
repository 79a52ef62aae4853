// Forms that change while they are filled in, long ones, and rounds that follow each other.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Field } from "../src/protocol";
import { fakeTimers, field, form, open, Page, press, round, type, view } from "./page";
import { nest, list, union, at, STREET, CITY, NAME, TAG, sends, refuse, shown } from "./trees";

describe("a live form", () => {
  beforeEach(fakeTimers);
  afterEach(() => {
    vi.useRealTimers();
  });

  const kind = field({ name: "kind", required: true });
  const extra = field({ name: "extra" });
  const last = field({ name: "last" });
  const live = (fields: Field[]) => form(fields, { live: true });
  const checks = (page: Page) => page.sent.filter((letter) => letter.kind === "check");
  const answer = (page: Page, fields: Field[], given: { id?: string; blocked?: string } = {}) =>
    page.say({
      kind: "plan",
      id: given.id ?? checks(page).at(-1)!.id,
      round_id: "r1",
      key: "ask",
      fields,
      blocked: given.blocked ?? null,
    });
  const labels = (page: Page) => page.all(".field .label").map((each) => each.textContent);
  async function changed(page: Page, label: string, text: string): Promise<void> {
    type(page.labelled(label), text);
    vi.advanceTimersByTime(250);
    await page.settled();
  }

  test("asks once, 250 ms after the last change, with what would be sent", async () => {
    const page = await open([live([kind, last])]);
    type(page.labelled("kind"), "a");
    vi.advanceTimersByTime(200);
    type(page.labelled("kind"), "ab");
    vi.advanceTimersByTime(249);
    expect(checks(page)).toHaveLength(0);
    vi.advanceTimersByTime(1);
    expect(checks(page)).toMatchObject([{ round_id: "r1", key: "ask", values: { kind: { text: "ab" } } }]);
    page.free();
  });

  test("does not ask when it is not live", async () => {
    const page = await open([form([kind])]);
    await changed(page, "kind", "a");
    expect(checks(page)).toHaveLength(0);
    page.free();
  });

  test("draws new fields in their place; the others keep element, value and focus", async () => {
    const page = await open([live([kind, last])]);
    const [first, end] = [page.labelled("kind"), page.labelled("last")];
    type(end, "z");
    await changed(page, "kind", "a");
    answer(page, [kind, extra, { ...last, required: true, description: "Now needed" }]);
    expect(labels(page)).toEqual(["kind", "extra", "last"]);
    expect(page.labelled("kind")).toBe(first);
    expect(page.labelled("last")).toBe(end);
    expect(document.activeElement).toBe(first);
    expect(end.value).toBe("z");
    expect(end.getAttribute("aria-required")).toBe("true");
    expect(page.describedBy(end)).toBe("Now needed");
    expect(page.one(".field:last-child .optional").textContent).toBe("");
    page.free();
  });

  test("what goes is not sent, and comes back with what was typed", async () => {
    const page = await open([live([kind, extra, last])]);
    type(page.labelled("extra"), "kept");
    await changed(page, "kind", "a");
    answer(page, [kind, last]);
    expect(labels(page)).toEqual(["kind", "last"]);
    await sends(page, { kind: { text: "a" } });
    await changed(page, "kind", "b");
    expect(checks(page).at(-1)!.values).toEqual({ kind: { text: "b" } });
    answer(page, [kind, extra, last]);
    expect(page.labelled("extra").value).toBe("kept");
    await sends(page, { kind: { text: "b" }, extra: { text: "kept" } });
    page.free();
  });

  test("drops the reply to an older question", async () => {
    const page = await open([live([kind])]);
    await changed(page, "kind", "a");
    const { id } = checks(page)[0]!;
    await changed(page, "kind", "b");
    answer(page, [kind, extra], { id });
    expect(labels(page)).toEqual(["kind"]);
    answer(page, [kind, last]);
    expect(labels(page)).toEqual(["kind", "last"]);
    page.free();
  });

  test("an unanswered older question is not sent any more", async () => {
    const page = await open([live([kind])]);
    page.acknowledges = false;
    await changed(page, "kind", "a");
    await changed(page, "kind", "b");
    const before = checks(page).length;
    vi.advanceTimersByTime(500);
    expect(new Set(checks(page).slice(before).map((letter) => letter.id)).size).toBe(1);
    page.free();
  });

  test("asks before it submits, so that errors find the fields of these values", async () => {
    const page = await open([live([kind])]);
    type(page.labelled("kind"), "a");
    page.button("Submit").click();
    await page.settled();
    expect(page.sent.map((letter) => letter.kind)).toEqual(["ready", "check", "submit"]);
    answer(page, [kind, extra]);
    refuse(page, [["/extra", "is required"]]);
    expect(document.activeElement).toBe(page.labelled("extra"));
    vi.advanceTimersByTime(1000);
    expect(checks(page)).toHaveLength(1);
    page.free();
  });

  test("an accept that is no longer possible is not offered, with the reason", async () => {
    const page = await open([live([kind])]);
    await changed(page, "kind", "a");
    answer(page, [kind], { blocked: "“x” is required" });
    expect(page.button("Submit").disabled).toBe(true);
    expect(page.el.textContent).toContain("“x” is required");
    await changed(page, "kind", "b");
    answer(page, [kind]);
    expect(page.button("Submit").disabled).toBe(false);
    page.free();
  });

  test("a choice whose options change keeps the chosen one by its name", async () => {
    const options = (...names: string[]) => names.map((label) => ({ label, description: null }));
    const choice = (...names: string[]) => field({ name: "c", control: "choice", options: options(...names) });
    const page = await open([live([kind, choice("x", "y", "z")])]);
    page.labelled("y").click();
    await changed(page, "kind", "a");
    answer(page, [kind, choice("y", "w")]);
    expect(page.labelled("y").checked).toBe(true);
    await sends(page, { kind: { text: "a" }, c: { choice: 0 } });
    await changed(page, "kind", "b");
    answer(page, [kind, choice("v", "w")]);
    await sends(page, { kind: { text: "b" } });
    page.free();
  });

  test("asks again when a new field brings a default, and not for ever", async () => {
    const page = await open([live([kind])]);
    await changed(page, "kind", "a");
    const came = field({ name: "came", initial: { text: "DE" } });
    answer(page, [kind, came]);
    vi.advanceTimersByTime(250);
    expect(checks(page).at(-1)!.values).toEqual({ kind: { text: "a" }, came: { text: "DE" } });
    answer(page, [kind, came, last]);
    vi.advanceTimersByTime(250);
    expect(new Set(checks(page).map((letter) => letter.id)).size).toBe(2);
    for (let i = 0; i < 20; i++) {
      answer(page, i % 2 ? [kind, came] : [kind]);
      vi.advanceTimersByTime(250);
    }
    expect(new Set(checks(page).map((letter) => letter.id)).size).toBe(4);
    page.free();
  });

  test("the focus of a field that goes passes to its neighbour", async () => {
    const page = await open([live([kind, extra, last])]);
    await changed(page, "kind", "a");
    page.labelled("extra").focus();
    answer(page, [kind, last]);
    expect(document.activeElement).toBe(page.labelled("last"));
    page.free();
  });

  test("rules inside an object, a list and a choice leave what is there as it is", async () => {
    const plan = (more: Field[], min: number) => [
      nest("address", [CITY, ...more], { required: true }),
      list("tags", TAG, { min, required: true }),
      union("pay", [{ label: "Card", fields: [at("/pay/number"), ...more] }, { label: "Cash", fields: [] }], { required: true }),
    ];
    const page = await open([live(plan([], 0))]);
    page.button("Add Tag").click();
    type(page.labelled("Tag 1"), "t");
    page.labelled("Card").click();
    type(page.labelled("number"), "42");
    const city = page.labelled("city");
    await changed(page, "city", "Ulm");
    answer(page, plan([field({ name: "zip" })], 1));
    expect(page.labelled("city")).toBe(city);
    expect(document.activeElement).toBe(city);
    expect(page.all(".label").filter((each) => each.textContent === "zip")).toHaveLength(2);
    expect(page.button("Remove Tag 1").ariaDisabled).toBe("true");
    await sends(page, {
      address: { fields: { city: { text: "Ulm" } } },
      tags: { items: [{ text: "t" }] },
      pay: { branch: 0, fields: { number: { text: "42" } } },
    });
    page.free();
  });

  test("what was typed in a choice that is not shown is still there after its plan changed", async () => {
    const plan = (more: Field[]) => [
      kind,
      union("pay", [
        { label: "Card", fields: [at("/pay/number"), ...more] },
        { label: "Bank", fields: [at("/pay/iban"), ...more] },
      ]),
    ];
    const page = await open([live(plan([]))]);
    page.labelled("Card").click();
    type(page.labelled("number"), "42");
    page.labelled("Bank").click();
    type(page.labelled("iban"), "DE1");
    await changed(page, "kind", "a");
    answer(page, plan([at("/pay/note")]));
    expect(page.labelled("iban").value).toBe("DE1");
    page.labelled("Card").click();
    type(page.labelled("note"), "n");
    await sends(page, { kind: { text: "a" }, pay: { branch: 0, fields: { number: { text: "42" }, note: { text: "n" } } } });
    page.labelled("Bank").click();
    await sends(page, { kind: { text: "a" }, pay: { branch: 1, fields: { iban: { text: "DE1" } } } });
    page.free();
  });

  test("a choice that gets another kind before the chosen one keeps the chosen one", async () => {
    const plan = (...names: string[]) => [kind, union("pay", names.map((label) => ({ label, fields: [at("/pay/" + label)] })))];
    const page = await open([live(plan("card", "bank"))]);
    page.labelled("bank").click();
    type(page.all<HTMLInputElement>("input:not([type=radio])").at(-1)!, "DE1");
    await changed(page, "kind", "a");
    answer(page, plan("cash", "card", "bank"));
    await sends(page, { kind: { text: "a" }, pay: { branch: 2, fields: { bank: { text: "DE1" } } } });
    answer(page, plan("cash"));
    await sends(page, { kind: { text: "a" } });
    page.free();
  });

  test("items whose plan changes keep what was typed, and the place of what was chosen", async () => {
    const options = (...names: string[]) => names.map((label) => ({ label, description: null }));
    const plan = (...names: string[]) => [kind, list("tags", { ...TAG, control: "choice", required: true, options: options(...names) })];
    const page = await open([live(plan("x", "y"))]);
    page.button("Add Tag").click();
    page.labelled("y").click();
    await changed(page, "kind", "a");
    answer(page, plan("w", "x", "y"));
    expect(page.labelled("y").checked).toBe(true);
    expect(page.labelled<HTMLElement>("Tag 1").querySelectorAll("input")).toHaveLength(3);
    await sends(page, { kind: { text: "a" }, tags: { items: [{ choice: 2 }] } });
    page.free();
  });

  test("asks nothing after the round has gone or the page is closed", async () => {
    const page = await open([live([kind])]);
    type(page.labelled("kind"), "a");
    page.show(view(null));
    vi.advanceTimersByTime(1000);
    expect(checks(page)).toHaveLength(0);
    const other = await open([live([kind])]);
    type(other.labelled("kind"), "a");
    other.free();
    page.free();
    // jsdom has a timer of its own for the selection that moved.
    vi.advanceTimersByTime(1);
    expect(vi.getTimerCount()).toBe(0);
    vi.advanceTimersByTime(1000);
    expect(checks(other)).toHaveLength(0);
    expect([...other.listeners.values()].map((each) => each.size)).toEqual([0, 0, 0]);
  });
});

describe("a form of many fields", () => {
  const many = Array.from({ length: 41 }, (_, at) =>
    field({ name: "f" + at, label: "Field " + at, description: at === 7 ? "the secret one" : null }),
  );

  test("can be searched by label and description; fields with an error stay", async () => {
    const page = await open([form(many)]);
    type(page.labelled("Field 3"), "x");
    const box = page.one<HTMLInputElement>("input[type=search]");
    expect(box.ariaLabel ?? box.getAttribute("aria-label")).toBe("Search fields");
    const visible = () => page.all(".field").filter((each) => !each.hidden).map((each) => each.querySelector("label")!.textContent);
    type(box, "SECRET");
    expect(visible()).toEqual(["Field 7"]);
    expect(page.one(".search [role=status]").textContent).toBe("1 of 41 fields");
    press(box, "Enter");
    expect(page.submits()).toHaveLength(0);
    page.button("Submit").click();
    await page.settled();
    expect(page.values()).toEqual({ f3: { text: "x" } });
    refuse(page, [["/f20", "is required"]]);
    expect(visible()).toEqual(["Field 7", "Field 20"]);
    expect(document.activeElement).toBe(page.labelled("Field 20"));
    type(box, "");
    expect(visible()).toHaveLength(41);
  });

  test("searches inside of objects", async () => {
    const page = await open([form([...many, nest("address", [STREET, CITY], { required: true })])]);
    type(page.one<HTMLInputElement>("input[type=search]"), "street");
    expect(shown(page, "street")).toBe(true);
    expect(shown(page, "city")).toBe(false);
    type(page.one<HTMLInputElement>("input[type=search]"), "address");
    expect(shown(page, "city")).toBe(true);
  });

  test("fewer have no search box", async () => {
    const page = await open([form(many.slice(1))]);
    expect(page.all("input[type=search]")).toHaveLength(0);
  });
});

describe("a round", () => {
  test("shows on demand what the operation was called with, as text", async () => {
    const text = '{\n  "path": "<b>x</b>"\n}';
    const page = await open([form([NAME])], { arguments: text });
    const details = page.one<HTMLDetailsElement>("details");
    expect(details.open).toBe(false);
    expect(details.querySelector("pre")!.textContent).toBe(text);
    expect(page.all("details b")).toHaveLength(0);
    const without = await open([form([NAME])]);
    expect(without.all("details")).toHaveLength(0);
  });

  test("that follows another keeps the height until it is there, and no longer than a moment", async () => {
    fakeTimers();
    const page = await open([form([NAME])]);
    const place = page.one<HTMLElement>(".round").parentElement!;
    Object.defineProperty(place, "offsetHeight", { value: 420 });
    page.show(view(null));
    expect(place.style.minHeight).toBe("420px");
    page.show(view(round([form([field({ name: "other" })])], "r2")));
    expect(place.style.minHeight).toBe("");
    page.show(view(null));
    vi.advanceTimersByTime(5000);
    expect(place.style.minHeight).toBe("");
    page.show(view(round([form([NAME])], "r3")));
    page.show(view(null, { state: "finished", status: "Completed", outcome: "completed" }));
    expect(place.style.minHeight).toBe("");
    page.free();
    vi.useRealTimers();
  });
});
