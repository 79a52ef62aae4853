import { type Child, h, words } from "./dom";
import { type Control, control } from "./controls";
import { address, opener, refusal } from "./link";
import type { Action, FieldError, Plan, RawValue, Response } from "./protocol";

/** One request of a round on the page. */
export interface Request {
  plan: Plan;
  element: HTMLElement;
  /** Why accept cannot be offered. */
  blocked: string | null;
  touched(): boolean;
  /** The link to an address that may be opened; `opened` is called by the click that opens it. */
  link(opened: () => void): HTMLElement | null;
  /** Hides the fields, which are not sent. */
  fold(folded: boolean): void;
  /** Whether the server says that what it asked for has happened elsewhere. */
  done(done: boolean): void;
  /** The answer for an action, or null when a field cannot be sent as it stands (it is marked). */
  respond(action: Action): Response | null;
  /** Shows errors at their fields and returns those that belong to no field. */
  mark(errors: FieldError[]): FieldError[];
  /** The first marked field, else the first field. */
  focus(marked?: boolean): boolean;
}

const LONG = 800;

export function request(plan: Plan, id: () => string): Request {
  const controls: Control[] = plan.mode === "form" ? plan.fields.map((field) => control(field, id)) : [];
  const bad = new Set<Control>();
  const named = controls.length === 1 && controls[0]!.field.label === plan.message.trim();
  const message = words("message", plan.message);
  // A long message scrolls by itself, so that the buttons stay in reach; the keyboard must be able to get at it.
  if (message && plan.message.length > LONG) message.tabIndex = 0;
  const blocked = plan.mode === "url" ? refusal(plan) : plan.blocked;
  const host = id();
  const done = h("div", { class: "done", role: "status" });
  const body: Child[] =
    plan.mode === "url"
      ? [message, ...address(plan, !!blocked, host), done]
      : [
          words("title", plan.title),
          named ? null : message,
          words("note", plan.description),
          ...controls.map((one) => one.element),
          ...plan.hints.map((hint) => words("hint", hint)),
        ];
  return {
    plan,
    blocked,
    element: h("div", { class: "request" }, ...body, words("error form-error", blocked)),
    touched: () => controls.some((one) => one.touched()),
    link: (opened) => (plan.mode === "url" && !blocked ? opener(plan, host, opened) : null),
    fold: (folded) => controls.forEach((one) => (one.element.hidden = folded)),
    done: (yes) => (done.textContent = yes ? "The server says that this is done." : ""),
    respond(action) {
      bad.clear();
      for (const one of controls) one.mark(null);
      if (action !== "accept") return { action };
      const values: [string, RawValue][] = [];
      for (const one of controls) {
        const value = one.read();
        if (typeof value === "string") {
          one.mark(value);
          bad.add(one);
        } else if (value) values.push([one.field.name, value]);
      }
      // fromEntries also keeps a property that is called __proto__.
      return bad.size ? null : plan.mode === "form" ? { action, values: Object.fromEntries(values) } : { action };
    },
    mark(errors) {
      const left: FieldError[] = [];
      const told = new Map<Control, string[]>();
      for (const error of errors) {
        const one = controls.find(
          ({ field: { pointer } }) => pointer === error.pointer || error.pointer.startsWith(pointer + "/"),
        );
        if (!one) left.push(error);
        else {
          const inside = error.pointer.slice(one.field.pointer.length);
          told.set(one, [...(told.get(one) ?? []), (inside ? inside + ": " : "") + error.message]);
        }
      }
      for (const [one, texts] of told) {
        one.mark(texts.join("\n"));
        bad.add(one);
      }
      return left;
    },
    focus(marked) {
      const one = controls.find((each) => !marked || bad.has(each));
      one?.focus();
      return !!one;
    },
  };
}
