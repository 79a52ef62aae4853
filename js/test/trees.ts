// Fields of trees, and what a test asks of the page that draws them.

import { expect } from "vitest";
import type { Branch, Field, FieldError } from "../src/protocol";
import { field, type Page } from "./page";

export const nest = (name: string, fields: Field[], given: Partial<Field> = {}) =>
  field({ name, control: "object", fields, ...given });

export const list = (name: string, item: Field, given: Partial<Field> = {}) =>
  field({ name, control: "list", item: { ...item, name: "", pointer: "" }, min: 0, max: null, ...given });

export const union = (name: string, branches: Partial<Branch>[], given: Partial<Field> = {}) =>
  field({
    name,
    control: "union",
    branches: branches.map((each, at) => ({ label: "b" + at, description: null, fields: null, field: null, ...each })),
    ...given,
  });

export const at = (pointer: string, given: Partial<Field> = {}) => field({ name: pointer.split("/").at(-1)!, pointer, ...given });

export const STREET = at("/address/street");
export const CITY = at("/address/city", { required: true });
export const NAME = field({ name: "name" });
export const TAG = field({ name: "", label: "Tag" });

/** What is sent now; the page stays open. */
export async function sends(page: Page, value: unknown): Promise<void> {
  page.button("Submit").click();
  await page.settled();
  expect(page.values()).toEqual(value);
  refuse(page);
}

export function refuse(page: Page, errors: [string, string][] = []): void {
  const all: FieldError[] = errors.map(([pointer, message]) => ({ request_key: "ask", pointer, message, keyword: "x" }));
  page.say({ kind: "invalid", id: page.submits().at(-1)!.id, round_id: "r1", errors: all, message: "" });
}

export const hush = (page: Page) => page.one(".hush").textContent;
export const shown = (page: Page, label: string) => !page.labelled<HTMLElement>(label).closest("[hidden]");
