// A round that goes while somebody types: what was typed stays, and may start the run again.

import { expect, test } from "vitest";
import { field, form, open, Page, press, round, type, url, view } from "./page";

const NAME = form([field({ name: "name", required: true })]);
const ENDED = { state: "finished", status: "Timed out", outcome: "timed_out" } as const;

async function typedTooLate(given: object = { again: "r1" }) {
  const page = await open([NAME]);
  type(page.labelled("name"), "Ada");
  page.show(view(null, { ...ENDED, ...given }));
  return page;
}

test("what was typed starts the run again", async () => {
  const page = await typedTooLate();
  expect(page.said).toContain("still here");
  expect(page.all("button").map((each) => each.textContent)).toEqual(["Run again with this answer", "Dismiss"]);
  expect(document.activeElement).toBe(page.labelled("name"));
  type(page.labelled("name"), "Grace");
  page.button("Run again with this answer").click();
  await page.settled();
  const [letter] = page.sent.filter(({ kind }) => kind === "again");
  expect([letter!.round_id, letter!.responses]).toEqual(["r1", { ask: { action: "accept", values: { name: { text: "Grace" } } } }]);
  expect(page.one<HTMLFieldSetElement>(".all").disabled).toBe(true);
  page.say({ kind: "invalid", id: letter!.id, round_id: "r1", message: "Look again.", errors: [
    { request_key: "ask", pointer: "/name", keyword: "maxLength", message: "too long" },
  ] });
  expect(page.one(".field .error").textContent).toBe("too long");
  page.button("Run again with this answer").click();
  const again = page.sent.filter(({ kind }) => kind === "again").at(-1)!;
  page.say({ kind: "again", id: again.id, round_id: "r1" });
  expect(page.said).toBe("Started again with this answer.");
  expect(page.all(".round")).toHaveLength(0);
  page.show(view(null, { execution_id: "e2" }));
  expect(page.said).toBe("Started again with this answer.");
  page.show(view(round([NAME], "r9"), { execution_id: "e2" }));
  expect(page.button("Submit").disabled).toBe(false);
  page.free();
});

test("an answer that was under way when the round went is kept, and may be given again", async () => {
  const page = await open([NAME]);
  type(page.labelled("name"), "Ada");
  page.button("Submit").click();
  await page.settled();
  page.show(view(null, { ...ENDED, again: "r1" }));
  expect([page.said, page.one<HTMLFieldSetElement>(".all").disabled]).toEqual(["Sending…", true]);
  page.say({ kind: "refused", id: page.submits()[0]!.id, round_id: "r1", message: "No longer waiting (timeout)." });
  expect(page.labelled("name").value).toBe("Ada");
  expect(page.button("Run again with this answer").matches(":disabled")).toBe(false);
  page.free();
});

test("one that was accepted after all goes", async () => {
  const page = await open([NAME]);
  type(page.labelled("name"), "Ada");
  page.button("Submit").click();
  await page.settled();
  page.show(view(null));
  page.say({ kind: "accepted", id: page.submits()[0]!.id, round_id: "r1" });
  expect(page.all(".round")).toHaveLength(0);
  expect(page.said).toContain("Answer stored");
  page.free();
});

test("where the run cannot be made again it stays to be read, until the next round", async () => {
  const page = await typedTooLate({ again: null });
  expect(page.said).toContain("still here");
  expect(page.labelled("name").value).toBe("Ada");
  expect(page.one<HTMLFieldSetElement>(".all").disabled).toBe(true);
  page.show(view(round([form([field({ name: "other" })])], "r2")));
  expect(page.all("input")).toHaveLength(1);
  expect(page.labelled("other").value).toBe("");
  page.free();
});

test("dismissed, it is gone", async () => {
  const page = await typedTooLate();
  press(page.labelled("name"), "Escape");
  expect(page.labelled("name").value).toBe("Ada");
  page.button("Dismiss").click();
  expect(page.all(".round")).toHaveLength(0);
  page.show(view(null, { ...ENDED, again: "r1" }));
  expect(page.all(".round")).toHaveLength(0);
  page.free();
});

test.each([["a form that nobody touched", NAME], ["an address", url("example.com")]])("%s goes at once", async (_, plan) => {
  const page = await open([plan]);
  page.show(view(null, { ...ENDED, again: "r1" }));
  expect(page.all(".round")).toHaveLength(0);
  expect(page.said).toContain("The run has ended");
  page.free();
});

test("a preview has no run that could be cancelled", async () => {
  const page = await open([NAME]);
  expect(page.all("button").map((each) => each.textContent)).toContain("Cancel run");
  page.free();
  const preview = new Page(view(round([NAME]), { preview: true }));
  expect(preview.all("button").map((each) => each.textContent)).not.toContain("Cancel run");
  preview.free();
});

test("an execution whose id becomes known is the same one", async () => {
  const page = new Page(view(round([NAME]), { execution_id: "unknown" }));
  await page.settled();
  type(page.labelled("name"), "Ada");
  page.show(view(round([NAME])));
  expect(page.button("Submit").matches(":disabled")).toBe(false);
  page.free();
});
