// Objects, lists and unions: what is shown is what is sent, by keyboard too.

import { describe, expect, test } from "vitest";
import type { RawValue } from "../src/protocol";
import { field, form, open, Page, press, round, type, view } from "./page";
import { nest, list, union, at, STREET, CITY, NAME, TAG, sends, refuse, hush, shown } from "./trees";

describe("an object", () => {
  test("that is optional is added and removed on purpose; what was typed comes back with it", async () => {
    const page = await open([form([nest("address", [STREET, CITY])])]);
    expect(shown(page, "street")).toBe(false);
    await sends(page, {});
    page.button("Add address").click();
    expect(hush(page)).toBe("address added.");
    expect(document.activeElement).toBe(page.labelled("street"));
    await sends(page, { address: { fields: {} } });
    type(page.labelled("city"), "Ulm");
    await sends(page, { address: { fields: { city: { text: "Ulm" } } } });
    page.button("Remove address").focus();
    page.button("Remove address").click();
    expect(shown(page, "city")).toBe(false);
    expect(document.activeElement).toBe(page.button("Add address"));
    await sends(page, {});
    page.button("Add address").click();
    expect(page.labelled("city").value).toBe("Ulm");
  });

  test("that is required is always there and always sent", async () => {
    const page = await open([form([nest("address", [STREET], { required: true })])]);
    expect(page.button("Remove address").hidden).toBe(true);
    await sends(page, { address: { fields: {} } });
  });

  test("starts from the values it is given, and then from nothing else", async () => {
    const fields = [at("/address/street", { initial: { text: "own" } }), CITY];
    const initial = { fields: { city: { text: "Ulm" } } };
    const page = await open([form([nest("address", fields, { initial })])]);
    expect(page.labelled("street").value).toBe("");
    await sends(page, { address: initial });
  });

  test("without a start of its own brings the defaults in it when it is added", async () => {
    const page = await open([form([nest("address", [at("/address/street", { initial: { text: "own" } })])])]);
    await sends(page, {});
    page.button("Add address").click();
    await sends(page, { address: { fields: { street: { text: "own" } } } });
  });

  test("that was there from the start is omitted once all in it is cleared", async () => {
    const page = await open([form([nest("address", [CITY], { initial: { fields: { city: { text: "Ulm" } } } })])]);
    page.button("Remove address").click();
    await sends(page, {});
  });

  test("can be sent as null", async () => {
    const page = await open([form([nest("address", [CITY], { nullable: true, initial: { null: true } })])]);
    expect(shown(page, "city")).toBe(false);
    await sends(page, { address: { null: true } });
    page.button("Add address").click();
    await sends(page, { address: { fields: {} } });
    page.button("Remove address").click();
    page.button("null").click();
    await sends(page, { address: { null: true } });
    page.button("null").click();
    await sends(page, {});
  });

  test("is a group with a name, a description and its error", async () => {
    const page = await open([form([nest("address", [CITY], { required: true, description: "Where you live" })])]);
    const group = page.labelled<HTMLFieldSetElement>("address");
    expect(group.tagName).toBe("FIELDSET");
    expect(group.querySelector("legend")!.textContent).toBe("address");
    page.button("Submit").click();
    refuse(page, [["/address", "has too few fields"]]);
    expect(page.describedBy(group)).toBe("Where you live | has too few fields");
    type(page.labelled("city"), "x");
    expect(page.describedBy(group)).toBe("Where you live");
  });
});

describe("a list", () => {
  const three = { items: ["a", "b", "c"].map((text) => ({ text })) };
  const values = (page: Page) => page.all<HTMLInputElement>(".item input").map((each) => each.value);

  test("adds items and puts the focus into them", async () => {
    const page = await open([form([list("tags", TAG)])]);
    await sends(page, {});
    page.button("Add Tag").click();
    expect(document.activeElement).toBe(page.labelled("Tag 1"));
    expect(hush(page)).toBe("Tag 1 added, 1 in all.");
    type(page.labelled("Tag 1"), "x");
    page.button("Add Tag").click();
    await sends(page, { tags: { items: [{ text: "x" }, { absent: true }] } });
  });

  test("moves items with all that was typed in them, and the focus stays with the item", async () => {
    const item = nest("", [field({ name: "qty" })], { label: "Line", required: true });
    const page = await open([form([list("lines", item)])]);
    for (const text of ["1", "2", "3"]) {
      page.button("Add Line").click();
      type(page.labelled("qty", page.all(".item").at(-1)), text);
    }
    const third = page.button("Move up: Line 3");
    third.focus();
    third.click();
    third.click();
    expect(values(page)).toEqual(["3", "1", "2"]);
    expect(document.activeElement).toBe(third);
    expect(third.ariaLabel).toBe("Move up: Line 1");
    expect(hush(page)).toBe("Line 2 moved to 1, 3 in all.");
    page.button("Move down: Line 1").click();
    const sent = ["1", "3", "2"].map((text) => ({ fields: { qty: { text } } }));
    await sends(page, { lines: { items: sent } });
    expect(page.all(".item legend .label").map((each) => each.textContent)).toEqual(["Line 1", "Line 2", "Line 3"]);
  });

  test("at its ends says why an item goes no further", async () => {
    const page = await open([form([list("tags", TAG, { initial: three })])]);
    const up = page.button("Move up: Tag 1");
    expect(up.ariaDisabled).toBe("true");
    up.click();
    expect(hush(page)).toBe("Already first.");
    page.button("Move down: Tag 3").click();
    expect(hush(page)).toBe("Already last.");
    await sends(page, { tags: three });
  });

  test("removes items; the focus goes to the next, the last, and at last to Add", async () => {
    const page = await open([form([list("tags", TAG, { initial: three })])]);
    page.button("Remove Tag 2").click();
    expect(values(page)).toEqual(["a", "c"]);
    expect(document.activeElement).toBe(page.button("Remove Tag 2"));
    expect(hush(page)).toBe("Tag 2 removed, 2 in all.");
    page.button("Remove Tag 2").click();
    expect(document.activeElement).toBe(page.button("Remove Tag 1"));
    page.button("Remove Tag 1").click();
    expect(document.activeElement).toBe(page.button("Add Tag"));
    await sends(page, {});
  });

  test("keeps its bounds, with the reason in reach", async () => {
    const page = await open([
      form([list("tags", TAG, { min: 1, max: 2, required: true, initial: { items: [{ text: "a" }] } })]),
    ]);
    const group = page.labelled<HTMLElement>("tags");
    page.button("Remove Tag 1").click();
    expect(hush(page)).toBe("Not fewer than 1.");
    expect(page.describedBy(group)).toBe("Not fewer than 1.");
    page.button("Add Tag").click();
    expect(page.button("Add Tag").ariaDisabled).toBe("true");
    expect(page.describedBy(page.button("Add Tag"))).toContain("Not more than 2.");
    page.button("Add Tag").click();
    expect(values(page)).toEqual(["a", ""]);
    page.button("Remove Tag 1").click();
    await sends(page, { tags: { items: [{ absent: true }] } });
    expect(page.button("Add Tag").ariaDisabled).toBe(null);
  });

  test("can be sent empty or as null on purpose, and an item takes that back", async () => {
    const page = await open([form([list("tags", TAG, { empty: true, nullable: true, initial: { items: [] } })])]);
    await sends(page, { tags: { items: [] } });
    page.button("empty list").click();
    await sends(page, {});
    page.button("null").click();
    await sends(page, { tags: { null: true } });
    page.button("Add Tag").click();
    expect(page.button("null").closest<HTMLElement>(".others")!.hidden).toBe(true);
    await sends(page, { tags: { items: [{ absent: true }] } });
    page.button("Remove Tag 1").click();
    await sends(page, {});
  });

  test("in a list has items of its own", async () => {
    const inner = list("", TAG, { label: "Row" });
    const page = await open([form([list("rows", inner)])]);
    page.button("Add Row").click();
    page.button("Add Row").click();
    page.all<HTMLButtonElement>("button").filter((each) => each.ariaLabel === "Add Tag")[1]!.click();
    type(page.labelled("Tag 1"), "x");
    await sends(page, { rows: { items: [{ absent: true }, { items: [{ text: "x" }] }] } });
  });

  test("Enter on its buttons does not send the form, Enter in a line does", async () => {
    const page = await open([form([list("tags", TAG, { initial: three })])]);
    for (const label of ["Add Tag", "Remove Tag 1", "Move up: Tag 2"]) press(page.button(label), "Enter");
    expect(page.submits()).toHaveLength(0);
    press(page.labelled("Tag 1"), "Enter");
    expect(page.submits()).toHaveLength(1);
  });
});

describe("a choice between kinds", () => {
  const card = { label: "Card", fields: [at("/pay/number")] };
  const bank = { label: "Bank", fields: [at("/pay/iban"), at("/pay/bic", { initial: { text: "X" } })] };

  test("shows the fields of what is chosen, sends only these, and keeps what was typed in the other", async () => {
    const page = await open([form([union("pay", [card, bank], { required: true })])]);
    const choice = page.labelled<HTMLElement>("pay");
    expect(choice.getAttribute("role")).toBe("radiogroup");
    expect(choice.querySelectorAll(":checked")).toHaveLength(0);
    await sends(page, {});
    page.labelled("Card").click();
    type(page.labelled("number"), "42");
    await sends(page, { pay: { branch: 0, fields: { number: { text: "42" } } } });
    page.labelled("Bank").click();
    expect(() => page.labelled("number")).toThrow();
    await sends(page, { pay: { branch: 1, fields: { bic: { text: "X" } } } });
    page.labelled("Card").click();
    expect(page.labelled("number").value).toBe("42");
    await sends(page, { pay: { branch: 0, fields: { number: { text: "42" } } } });
  });

  test("that is optional can be left open again", async () => {
    const initial = { branch: 1, fields: { iban: { text: "DE" } } };
    const page = await open([form([union("pay", [card, bank], { initial })])]);
    expect(page.labelled("Bank").checked).toBe(true);
    expect(page.labelled("bic").value).toBe("");
    await sends(page, { pay: initial });
    page.labelled("Unanswered").click();
    expect(page.one<HTMLElement>(".nest").hidden).toBe(true);
    await sends(page, {});
  });

  test("of differing types has one control per type", async () => {
    const text = { label: "Text", field: field({ name: "v", label: "Text value" }) };
    const flag = { label: "Flag", field: field({ name: "v", label: "Flag value", control: "boolean", required: true }) };
    const page = await open([form([union("v", [text, flag], { nullable: true })])]);
    page.labelled("Text").click();
    await sends(page, { v: { branch: 0 } });
    type(page.labelled("Text value"), "x");
    await sends(page, { v: { branch: 0, field: { text: "x" } } });
    page.labelled("Flag").click();
    page.labelled("No").click();
    await sends(page, { v: { branch: 1, field: { bool: false } } });
    page.labelled("null").click();
    await sends(page, { v: { null: true } });
  });

  test("of many kinds is a list to unfold", async () => {
    const branches = [..."abcdefg"].map((name) => ({ label: name, fields: [at("/pay/" + name + name)] }));
    const page = await open([form([union("pay", branches, { required: true })])]);
    type(page.labelled<HTMLSelectElement>("pay"), "3");
    type(page.labelled("dd"), "x");
    await sends(page, { pay: { branch: 3, fields: { dd: { text: "x" } } } });
  });
});

describe("errors", () => {
  const item = nest("", [field({ name: "qty" }), list("tags", TAG)], { label: "Line", required: true });
  const raw = (qty: string, tags: string[]): RawValue => ({
    fields: { qty: { text: qty }, tags: { items: tags.map((text) => ({ text })) } },
  });

  test("go to the innermost control, the first has the focus", async () => {
    const page = await open([
      form([NAME, list("lines", item, { initial: { items: [raw("1", ["a"]), raw("2", ["b", "c"])] } })]),
    ]);
    page.button("Submit").click();
    refuse(page, [
      ["/lines/1/tags/1", "is taken"],
      ["/lines/1/qty", "is too small"],
      ["/lines/1/other", "is not known"],
      ["/lines/7", "is not there"],
    ]);
    const second = page.all(".item").find((each) => each.querySelector("legend .label")?.textContent === "Line 2")!;
    const qty = page.labelled("qty", second);
    expect(page.describedBy(qty)).toBe("is too small");
    expect(qty.getAttribute("aria-invalid")).toBe("true");
    expect(page.describedBy(page.labelled("Tag 2", second))).toBe("is taken");
    expect(page.describedBy(page.labelled<HTMLElement>("Line 2"))).toBe("/other: is not known");
    expect(page.describedBy(page.labelled<HTMLElement>("lines"))).toContain("/7: is not there");
    expect(page.labelled("qty").hasAttribute("aria-invalid")).toBe(false);
    expect(second.contains(document.activeElement) || page.labelled<HTMLElement>("lines").contains(document.activeElement)).toBe(true);
  });

  test("move with their item", async () => {
    const page = await open([form([list("tags", TAG, { initial: { items: [{ text: "a" }, { text: "b" }] } })])]);
    page.button("Submit").click();
    refuse(page, [["/tags/1", "is taken"]]);
    expect(document.activeElement).toBe(page.labelled("Tag 2"));
    page.button("Move up: Tag 2").click();
    expect(page.describedBy(page.labelled("Tag 1"))).toBe("is taken");
    page.button("Submit").click();
    expect(page.all("[aria-invalid]")).toHaveLength(0);
  });

  test("unfold what they are in", async () => {
    const page = await open([form([nest("address", [STREET, CITY])])]);
    page.button("Submit").click();
    refuse(page, [["/address/city", "is required"]]);
    expect(shown(page, "city")).toBe(true);
    expect(document.activeElement).toBe(page.labelled("city"));
  });

  test("of a value that cannot be sent stand at the field inside", async () => {
    const due = field({ name: "due", pointer: "/job/due", control: "datetime" });
    const page = await open([form([nest("job", [due], { required: true })])]);
    const box = page.labelled("due");
    Object.defineProperty(box, "validity", { value: { badInput: true } });
    type(box, "");
    page.button("Submit").click();
    expect(page.submits()).toHaveLength(0);
    expect(page.describedBy(box)).toContain("not complete");
    expect(document.activeElement).toBe(box);
  });

  test("of a choice stand at the choice, of its fields at these", async () => {
    const page = await open([form([union("pay", [{ label: "Card", fields: [at("/pay/number")] }, {}], { required: true })])]);
    page.button("Submit").click();
    refuse(page, [["/pay", "is required"]]);
    expect(page.labelled<HTMLElement>("pay").getAttribute("aria-invalid")).toBe("true");
    page.labelled("Card").click();
    expect(page.labelled<HTMLElement>("pay").hasAttribute("aria-invalid")).toBe(false);
    page.button("Submit").click();
    refuse(page, [["/pay/number", "is too short"]]);
    expect(page.describedBy(page.labelled("number"))).toBe("is too short");
  });
});

describe("what is read only or deprecated", () => {
  test("is said in the label's line; what is read only is sent and cannot be changed", async () => {
    const options = ["x", "y"].map((label) => ({ label, description: null }));
    const page = await open([
      form([
        field({ name: "id", readonly: true, deprecated: true, initial: { text: "7" } }),
        field({ name: "kind", control: "choice", options, readonly: true, initial: { choice: 1 } }),
        NAME,
      ]),
    ]);
    expect(page.labelled("id").readOnly).toBe(true);
    expect(page.labelled("id").closest(".field")!.querySelector(".head")!.textContent).toContain("read only · deprecated");
    for (const box of page.labelled<HTMLElement>("kind").querySelectorAll("input")) expect(box.disabled).toBe(true);
    await sends(page, { id: { text: "7" }, kind: { choice: 1 } });
  });

  test("never takes the focus of a new form", async () => {
    const page = await open([form([NAME])]);
    page.labelled("name").focus();
    page.show(view(round([form([field({ name: "id", readonly: true }), field({ name: "next" })])], "r2")));
    expect(document.activeElement).toBe(page.labelled("next"));
  });
});
