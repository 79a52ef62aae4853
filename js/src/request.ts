import { type Child, h, words } from "./dom";
import { type Control, control } from "./controls";
import type { Action, FieldError, Plan, RawValue, Response, UrlPlan } from "./protocol";

/** One request of a round on the page. */
export interface Request {
  plan: Plan;
  element: HTMLElement;
  touched(): boolean;
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
  const body: Child[] =
    plan.mode === "url"
      ? [message, ...address(plan)]
      : [
          words("title", plan.title),
          named ? null : message,
          words("note", plan.description),
          ...controls.map((one) => one.element),
          ...plan.hints.map((hint) => words("hint", hint)),
        ];
  return {
    plan,
    element: h("div", { class: "request" }, ...body, words("error form-error", plan.blocked)),
    touched: () => controls.some((one) => one.touched()),
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

/** The address in parts. It becomes a link only when Python found nothing wrong, and is opened by a click only. */
function address(plan: UrlPlan): Child[] {
  const { text, scheme, host, path } = plan.url;
  return [
    h(
      "dl",
      { class: "address" },
      h("dt", {}, "Host"),
      h("dd", {}, h("strong", {}, host || "–")),
      h("dt", {}, "Scheme"),
      h("dd", {}, scheme || "–"),
      h("dt", {}, "Path"),
      h("dd", {}, path || "–"),
      h("dt", {}, "Address"),
      h("dd", {}, h("code", {}, text)),
    ),
    ...plan.warnings.map((warning) => words("warning", warning)),
    plan.openable &&
      h("a", { class: "link", href: text, target: "_blank", rel: "noopener noreferrer" }, "Open " + host + " in a new tab"),
  ];
}
