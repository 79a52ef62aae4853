// How messages travel: again until acknowledged, handled once, nothing left behind.

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { fakeTimers, field, form, Page, round, type, view } from "./page";

const NAME = form([field({ name: "name" })]);

beforeEach(fakeTimers);
afterEach(() => {
  vi.useRealTimers();
});

describe("ready", () => {
  test("is sent again each 250 ms with the same id, until it is acknowledged", () => {
    const page = new Page(view(round([NAME])), false);
    vi.advanceTimersByTime(600);
    expect(page.sent.map((letter) => letter.kind)).toEqual(["ready", "ready", "ready"]);
    expect(new Set(page.sent.map((letter) => letter.id)).size).toBe(1);
    page.say({ kind: "ack", id: page.sent[0]!.id });
    vi.advanceTimersByTime(5000);
    expect(page.sent).toHaveLength(3);
    page.free();
  });

  test("without any reply, the form closes and says so; a late reply opens it with what was typed", () => {
    const page = new Page(view(round([NAME])), false);
    type(page.labelled("name"), "Ada");
    vi.advanceTimersByTime(1100);
    expect(page.said).toBe("Connecting to the kernel…");
    vi.advanceTimersByTime(20_000);
    expect(page.sent).toHaveLength(40);
    expect(page.said).toContain("Not connected to a kernel");
    expect(page.button("Submit").matches(":disabled")).toBe(true);
    expect(page.button("Cancel run").disabled).toBe(true);
    expect(document.activeElement).toBe(page.one("[role=status]"));
    page.say({ kind: "ack", id: page.sent[0]!.id });
    expect(page.said).toBe("");
    expect(page.labelled("name").value).toBe("Ada");
    expect(page.button("Submit").matches(":disabled")).toBe(false);
    page.free();
  });

  test("an answer given before the first reply is on its way all the same", () => {
    const page = new Page(view(round([NAME])), false);
    type(page.labelled("name"), "Ada");
    page.button("Submit").click();
    page.say({ kind: "ack", id: page.sent[0]!.id });
    expect(page.said).toBe("Sending…");
    vi.advanceTimersByTime(300);
    expect(page.submits()).toHaveLength(2);
    page.free();
  });

  test("a run that has ended needs no kernel to be read", () => {
    const page = new Page(view(null, { state: "finished", status: "Completed", outcome: "completed" }), false);
    vi.advanceTimersByTime(20_000);
    expect(page.said).toBe("");
    page.free();
  });

  test("after the kernel restarted, the form closes within seconds and says so, its clock stands still", async () => {
    const page = new Page(view(round([NAME])));
    await page.settled();
    page.cut = true;
    for (const listener of page.listeners.get("comm_live_update") ?? []) listener();
    vi.advanceTimersByTime(1500);
    expect(page.said).toContain("Not connected to a kernel");
    expect(page.button("Submit").matches(":disabled")).toBe(true);
    expect(page.button("Cancel run").disabled).toBe(true);
    expect(page.one(".clock").textContent).toBe("");
    page.free();
  });

  test("an answer that cannot leave the page does not say that it is being sent for ever", async () => {
    const page = new Page(view(round([NAME])));
    await page.settled();
    type(page.labelled("name"), "Ada");
    page.cut = true;
    page.button("Submit").click();
    vi.advanceTimersByTime(1500);
    expect(page.said).toContain("The kernel does not answer");
    expect(page.labelled("name").value).toBe("Ada");
    page.free();
  });

  test("ids differ between widgets", () => {
    const first = new Page(view(null)).sent[0]!.id;
    expect(new Page(view(null)).sent[0]!.id).not.toBe(first);
  });
});

describe("submit", () => {
  test("is sent again until acknowledged, and a second click sends nothing", async () => {
    const page = new Page(view(round([NAME])));
    await page.settled();
    page.acknowledges = false;
    type(page.labelled("name"), "Ada");
    page.button("Submit").click();
    page.button("Submit").click();
    page.button("Decline").click();
    vi.advanceTimersByTime(500);
    expect(page.submits()).toHaveLength(3);
    expect(new Set(page.submits().map((letter) => letter.id)).size).toBe(1);
    expect(page.submits()[0]!.responses).toEqual({ ask: { action: "accept", values: { name: { text: "Ada" } } } });
    expect(page.labelled("name").matches(":disabled")).toBe(true);
    page.say({ kind: "ack", id: page.submits()[0]!.id });
    vi.advanceTimersByTime(5000);
    expect(page.submits()).toHaveLength(3);
    page.free();
  });

  test("a kernel that does not answer gives the form back with what was typed", async () => {
    const page = new Page(view(round([NAME])));
    await page.settled();
    page.acknowledges = false;
    type(page.labelled("name"), "Ada");
    page.button("Submit").click();
    vi.advanceTimersByTime(11_000);
    expect(page.said).toContain("try again");
    expect(page.labelled("name").value).toBe("Ada");
    expect(page.button("Submit").matches(":disabled")).toBe(false);
    page.free();
  });

  test("an acknowledged answer without a reply can be sent again after half a minute", async () => {
    const page = new Page(view(round([NAME])));
    await page.settled();
    page.button("Submit").click();
    await page.settled();
    vi.advanceTimersByTime(29_000);
    expect(page.button("Submit").matches(":disabled")).toBe(true);
    vi.advanceTimersByTime(2_000);
    expect(page.said).toContain("No reply yet");
    page.button("Submit").click();
    expect(new Set(page.submits().map((letter) => letter.id)).size).toBe(2);
    page.free();
  });

  test("once accepted, the form is closed for good, whichever view sent the answer", async () => {
    const page = new Page(view(round([NAME])));
    await page.settled();
    page.say({ kind: "accepted", id: "another view's", round_id: "r1" });
    expect(page.said).toContain("Answer stored");
    expect(page.button("Submit").matches(":disabled")).toBe(true);
    page.show(view(null));
    expect(page.all("form, .round")).toHaveLength(0);
    expect(page.said).toContain("Answer stored");
    page.show(view(null, { state: "finished", status: "Completed", outcome: "completed", elapsed: null }));
    expect(page.said).toBe("");
    page.free();
  });

  test("a reply that comes after the round has gone is still told", async () => {
    const page = new Page(view(round([NAME])));
    await page.settled();
    page.button("Submit").click();
    await page.settled();
    page.show(view(null));
    expect(page.said).toBe("Sending…");
    page.say({ kind: "refused", id: page.submits()[0]!.id, round_id: "r1", message: "Already answered elsewhere." });
    expect(page.said).toBe("Already answered elsewhere.");
    page.free();
  });

  test("a round that goes without an answer from here is told", async () => {
    const page = new Page(view(round([NAME])));
    await page.settled();
    page.show(view(null));
    expect(page.said).toContain("answered elsewhere");
    page.free();
  });

  test("refused: the message stands at the form, and what was typed stays", async () => {
    const page = new Page(view(round([NAME])));
    await page.settled();
    type(page.labelled("name"), "Ada");
    page.button("Submit").click();
    await page.settled();
    page.say({ kind: "refused", id: page.submits()[0]!.id, round_id: "r1", message: "The database is busy." });
    expect(page.one(".all > .form-error").textContent).toBe("The database is busy.");
    expect(document.activeElement).toBe(page.one(".all > .form-error"));
    expect(page.labelled("name").value).toBe("Ada");
    page.button("Submit").click();
    expect(page.submits()).toHaveLength(2);
    expect(page.one<HTMLElement>(".all > .form-error").hidden).toBe(true);
    page.free();
  });
});

test("cancelling the run is asked first, then sent", async () => {
  const page = new Page(view(round([NAME])));
  await page.settled();
  page.button("Cancel run").click();
  expect(page.sent.some((letter) => letter.kind === "cancel_run")).toBe(false);
  page.button("Keep it").click();
  page.button("Cancel run").click();
  page.button("Yes, cancel the run").click();
  expect(page.sent.filter((letter) => letter.kind === "cancel_run")).toHaveLength(1);
  page.show(view(null, { state: "finished", status: "Cancelled", outcome: "cancelled" }));
  expect(page.all("button")).toHaveLength(0);
  page.free();
});

test("clocks: waiting time, round and deadline", async () => {
  vi.setSystemTime(new Date("2026-12-01T10:00:00Z"));
  const page = new Page(
    view(round([NAME], "r1", { index: 2, limit: 8, deadline: "2026-12-01T10:02:05+00:00" }), { elapsed: 58 }),
  );
  await page.settled();
  const line = () => page.one(".header").textContent!;
  expect(line()).toContain("question 2 of at most 8");
  expect(line()).toContain("answer within 2 min 05 s");
  expect(line()).toContain("58 s");
  vi.advanceTimersByTime(66_000);
  expect(line()).toContain("answer within 59 s");
  expect(line()).toContain("2 min 04 s");
  vi.advanceTimersByTime(60_000);
  expect(line()).toContain("time is up");
  page.free();
});

test("the clean-up frees every listener, interval and observer, also twice", async () => {
  const controller = new AbortController();
  const before = vi.getTimerCount();
  const page = new Page(view(round([NAME])), false);
  expect(vi.getTimerCount()).toBeGreaterThan(before);
  page.free();
  page.free();
  expect(vi.getTimerCount()).toBe(before);
  expect([...page.listeners.values()].map((each) => each.size)).toEqual([0, 0, 0]);
  expect(page.el.childElementCount).toBe(0);
  controller.abort();
});

test("the summary shows what Python tells, as text", async () => {
  const page = new Page(view(null));
  const items = [
    { label: "<b>Street</b>", text: "1 <i>Main</i>" },
    { label: "Token", text: "[REDACTED]" },
  ];
  page.say({ kind: "summary", rounds: [{ round_id: "r0", action: "accept", items, at: "2026-12-01T10:12:00+00:00" }] });
  expect(page.one(".answered").textContent).toContain("Accepted");
  expect(page.all("dt").map((each) => each.textContent)).toEqual(["<b>Street</b>", "Token"]);
  expect(page.all("dd").map((each) => each.textContent)).toEqual(["1 <i>Main</i>", "[REDACTED]"]);
  page.free();
});
