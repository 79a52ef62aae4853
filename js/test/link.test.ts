// Requests to visit an address: opened and consented to by a click, each one for itself.

import { afterEach, describe, expect, test, vi } from "vitest";
import { field, form, open, type Page, press, round, type, url, view } from "./page";

afterEach(() => vi.unstubAllGlobals());

const pay = url("shop.example", { key: "pay" });
const files = url("files.example", { key: "files" });

/** The button or link of one request among several. */
function at(page: Page, nth: number, label: string): HTMLElement {
  const found = [...page.all(".one")[nth]!.querySelectorAll<HTMLElement>("button, a")].find(
    (each) => each.textContent === label,
  );
  if (!found) throw new Error("no " + label);
  return found;
}

describe("one address", () => {
  test("whoever opened it elsewhere says so, and that is the same consent", async () => {
    const page = await open([url("a.example")]);
    page.button("I opened it myself").click();
    expect(page.submits()[0]!.responses).toEqual({ ask: { action: "accept" } });
  });

  test("the middle button opens and consents too, the right one does not", async () => {
    const page = await open([url("a.example")]);
    const click = (button: number) => page.one("a").dispatchEvent(new MouseEvent("auxclick", { button, bubbles: true }));
    click(2);
    expect(page.submits()).toHaveLength(0);
    click(1);
    expect(page.submits()).toHaveLength(1);
  });

  test("a closed request opens nothing", async () => {
    const page = await open([url("a.example")]);
    page.say({ kind: "accepted", id: "another view's", round_id: "r1" });
    const event = new MouseEvent("click", { bubbles: true, cancelable: true });
    page.one("a").dispatchEvent(event);
    expect(event.defaultPrevented).toBe(true);
    expect(page.submits()).toHaveLength(0);
  });

  test("a refused answer gives the link back", async () => {
    const page = await open([url("a.example")]);
    page.one("a").click();
    await page.settled();
    page.say({ kind: "refused", id: page.submits()[0]!.id, round_id: "r1", message: "The database is busy." });
    page.one("a").click();
    expect(page.submits()).toHaveLength(2);
  });

  test("no key but the link's own opens it, and Escape asks before it cancels", async () => {
    const page = await open([url("a.example")]);
    press(page.one(".round"), "Enter");
    press(page.one(".round"), "Enter", { ctrlKey: true });
    expect(page.submits()).toHaveLength(0);
    page.one(".round").focus();
    press(page.one(".round"), "Escape");
    expect(page.one(".ask").textContent).toBe("Cancel this request?");
    page.button("Go back").click();
    expect(document.activeElement).toBe(page.one(".round"));
    expect(page.submits()).toHaveLength(0);
  });

  test("the focus never goes to a link by itself: who just pressed Enter would open it", async () => {
    const page = await open([form([field({ name: "name" })])]);
    page.labelled("name").focus();
    page.show(view(round([url("a.example")], "r2")));
    expect(document.activeElement).toBe(page.one(".round"));
  });

  test("what this browser would read differently is refused, whatever Python said", async () => {
    for (const [text, host] of [
      ["https://127.1/x", "127.1"],
      ["https://fass.example@other.example/", "fass.example"],
      ["javascript:alert(1)", ""],
      ["https://[", "["],
    ] as const) {
      const page = await open([url(host, { url: { text, scheme: "https", host, path: "/x" } })]);
      expect(page.all("a")).toHaveLength(0);
      expect(page.one(".request .form-error").textContent).toContain("differently");
      expect(page.all("button").map((each) => each.textContent)).toEqual(["Cancel run", "Decline", "Cancel"]);
      page.free();
    }
  });

  test("in a refused address, what cannot be seen is spelled out", async () => {
    const parts = { text: " a\u202eb\tc", scheme: "", host: "", path: "" };
    const page = await open([url("", { url: parts, openable: false, blocked: "No." })]);
    expect(page.one("code").textContent).toBe("\\u{20}a\\u{202e}b\\u{9}c");
  });

  test("Copy copies; without a clipboard the address is selected", async () => {
    const copied: string[] = [];
    vi.stubGlobal("navigator", { clipboard: { writeText: async (text: string) => void copied.push(text) } });
    const page = await open([url("a.example")]);
    page.button("Copy").click();
    await page.settled();
    expect(copied).toEqual(["https://a.example/x?y=1"]);
    expect(page.button("Copied")).toBeTruthy();
    vi.stubGlobal("navigator", {});
    page.button("Copied").click();
    expect(String(getSelection())).toBe("https://a.example/x?y=1");
    expect(page.submits()).toHaveLength(0);
  });

  test("what the server says is done is said at the request, which stays to be answered", async () => {
    const page = await open([url("a.example")]);
    expect(page.el.textContent).not.toContain("done");
    page.show(view(round([url("a.example")]), { done: ["ask"] }));
    expect(page.one(".done").textContent).toBe("The server says that this is done.");
    expect(page.button("I opened it myself").disabled).toBe(false);
  });
});

describe("several in one round", () => {
  test("each is decided for itself, and nothing is sent before the last one is", async () => {
    const page = await open([pay, files]);
    at(page, 0, "Open link").click();
    expect(page.submits()).toHaveLength(0);
    expect(at(page, 0, "I opened it myself").getAttribute("aria-pressed")).toBe("true");
    expect(at(page, 1, "I opened it myself").getAttribute("aria-pressed")).not.toBe("true");
    at(page, 1, "Decline").click();
    expect(page.submits()).toHaveLength(1);
    expect(page.submits()[0]!.responses).toEqual({ pay: { action: "accept" }, files: { action: "decline" } });
  });

  test("Submit accepts nothing that was not decided, and goes to it", async () => {
    const page = await open([pay, files]);
    at(page, 0, "I opened it myself").click();
    page.button("Submit").click();
    expect(page.submits()).toHaveLength(0);
    const missing = at(page, 1, "I opened it myself");
    expect(document.activeElement).toBe(missing);
    expect(page.describedBy(missing.closest("[role=group]")!)).toBe("Not decided yet.");
    at(page, 0, "Cancel").click();
    missing.click();
    expect(page.submits()[0]!.responses).toEqual({ pay: { action: "cancel" }, files: { action: "accept" } });
  });

  test("a form and an address are sent together by Submit", async () => {
    const page = await open([form([field({ name: "name", required: true })], { key: "who" }), pay]);
    type(page.labelled("name"), "Ada");
    press(page.labelled("name"), "Enter");
    expect(page.submits()).toHaveLength(0);
    at(page, 1, "Open link").click();
    expect(page.submits()).toHaveLength(0);
    press(page.labelled("name"), "Enter");
    expect(page.submits()[0]!.responses).toEqual({
      who: { action: "accept", values: { name: { text: "Ada" } } },
      pay: { action: "accept" },
    });
  });

  test("what is refused is not declined in anybody's name", async () => {
    const page = await open([pay, url("", { key: "bad", openable: false, blocked: "Only https." })]);
    at(page, 0, "Open link").click();
    page.button("Submit").click();
    expect(page.submits()).toHaveLength(0);
    expect(() => at(page, 1, "I opened it myself")).toThrow();
    at(page, 1, "Decline").click();
    expect(page.submits()[0]!.responses).toEqual({ pay: { action: "accept" }, bad: { action: "decline" } });
  });

  test("Cancel all cancels all", async () => {
    const page = await open([pay, files]);
    page.button("Cancel all").click();
    expect(page.submits()[0]!.responses).toEqual({ pay: { action: "cancel" }, files: { action: "cancel" } });
  });
});
