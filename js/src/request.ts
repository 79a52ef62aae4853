import { type Child, h, words } from "./dom";
import type { Context, Control } from "./controls";
import { address, opener, refusal } from "./link";
import { fields, first } from "./nested";
import type { Action, Field, FieldError, Plan, Response, Values } from "./protocol";

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
  /** Draws the fields as they are now for what was typed. */
  replan(fields: Field[], blocked: string | null): void;
  /** The first marked field, else the first field. */
  focus(marked?: boolean): boolean;
}

const LONG = 800;
/** Forms of more fields than this can be searched. */
const MANY = 40;
/** How often a form asks again by itself. */
const TURNS = 4;

/** `check` is called after each change of a form whose fields depend on it. */
export function request(plan: Plan, outer: Omit<Context, "changed">, check: (read: () => Values) => void): Request {
  const form = plan.mode === "form" ? plan : null;
  let touched = false;
  let turns = 0;
  const read = () => inside.read();
  const context: Context = {
    ...outer,
    changed() {
      touched = true;
      turns = 0;
      if (form?.live) check(read);
    },
  };
  const inside = fields(form?.fields ?? [], context);
  const all = () => walk(inside.controls());
  const many = all().length > MANY;
  const found = h("span", { class: "hint", role: "status" });
  const query = h("input", {
    type: "search",
    placeholder: "Search fields",
    "aria-label": "Search fields",
    oninput: sift,
  });
  function sift() {
    if (!many) return;
    const text = query.value.trim().toLowerCase();
    search(inside.controls(), text);
    const left = all().filter((one) => !one.element.closest("[hidden]")).length;
    found.textContent = text && `${left} of ${all().length} fields`;
  }
  const folding = h("div", "fields", many && h("div", "search", query, found), inside.element);
  const named = inside.controls().length === 1 && inside.controls()[0]!.field.label === plan.message.trim();
  const message = words("message", plan.message);
  // A long message scrolls by itself, so that the buttons stay in reach; the keyboard must be able to get at it.
  if (message && plan.message.length > LONG) message.tabIndex = 0;
  const blocked = plan.mode === "url" ? refusal(plan) : plan.blocked;
  const host = outer.id();
  const done = h("div", { class: "done", role: "status" });
  const block = h("div", { class: "error form-error", dir: "auto" }, blocked);
  const body: Child[] =
    plan.mode === "url"
      ? [message, ...address(plan, !!blocked, host), done]
      : [
          words("title", plan.title),
          named ? null : message,
          words("note", plan.description),
          folding,
          ...plan.hints.map((hint) => words("hint", hint)),
        ];
  const self: Request = {
    plan,
    blocked,
    element: h("div", "request", ...body, block),
    touched: () => touched,
    link: (opened) => (plan.mode === "url" && !blocked ? opener(plan, host, opened) : null),
    fold: (folded) => (folding.hidden = folded),
    done: (yes) => (done.textContent = yes ? "The server says that this is done." : ""),
    respond(action) {
      for (const one of all()) one.mark(null);
      if (action !== "accept" || plan.mode === "url") return { action };
      const values = inside.read((one, reason) => one.mark(reason));
      const wrong = all().some((one) => one.bad());
      if (wrong) sift();
      return wrong ? null : { action, values };
    },
    mark(errors) {
      const left: FieldError[] = [];
      const told = new Map<Control, string[]>();
      for (const error of errors) {
        const [one, below] = deepest(inside.controls(), error.pointer) ?? [];
        if (!one) left.push(error);
        else told.set(one, [...(told.get(one) ?? []), (below ? below + ": " : "") + error.message]);
      }
      for (const [one, texts] of told) one.mark(texts.join("\n"));
      sift();
      return left;
    },
    replan(next, blocked) {
      const before = JSON.stringify(read());
      inside.set(next);
      // A field that came with a default may bring others; two that take turns do so a few times only.
      if (turns++ < TURNS && JSON.stringify(read()) !== before) check(read);
      block.textContent = self.blocked = blocked;
      sift();
    },
    focus(marked) {
      const one = marked ? all().find((each) => each.bad()) : first(inside.controls());
      one?.focus();
      return !!one;
    },
  };
  return self;
}

/** Controls with those inside them, in the order of the page. */
const walk = (controls: Control[]): Control[] => controls.flatMap((one) => [one, ...walk(one.nested())]);

/** The innermost control that a JSON Pointer leads to, and what is left of the pointer; unfolds what is on the way. */
function deepest(controls: Control[], pointer: string, base = ""): [Control, string] | null {
  for (const one of controls) {
    const own = base + one.field.pointer;
    const below = pointer.slice(own.length);
    if (!pointer.startsWith(own) || (below && below[0] !== "/")) continue;
    if (below) one.open();
    const nth = below.split("/")[1];
    const inside =
      one.field.control !== "list"
        ? deepest(one.nested(), pointer, base)
        : nth && one.nested()[+nth] && deepest([one.nested()[+nth]!], pointer, own + "/" + nth);
    return inside || [one, below];
  }
  return null;
}

/** Hides what does not match, save what is marked. Lists and choices stay whole. Returns whether anything is left. */
function search(controls: Control[], text: string, hides = true): boolean {
  return controls.map((one) => {
    const { label, description, control } = one.field;
    const own = (label + " " + (description ?? "")).toLowerCase().includes(text);
    const inside = search(one.nested(), own ? "" : text, hides && control === "object");
    const stays = own || inside || one.bad();
    if (hides) one.element.hidden = !stays;
    return stays;
  }).includes(true);
}
