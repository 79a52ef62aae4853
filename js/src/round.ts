import { button, h, ids } from "./dom";
import type { Action, FieldError, Response, Round } from "./protocol";
import { type Request, request } from "./request";

/** The questions of one round, with the buttons that answer them. */
export interface Panel {
  round: Round;
  element: HTMLElement;
  /** Closed: nothing can be typed or pressed. */
  close(closed: boolean): void;
  invalid(errors: FieldError[]): void;
  /** Says why it did not work, at the form. */
  tell(message: string | null): void;
  focus(): void;
}

type Send = (responses: Record<string, Response>) => void;

export function panel(round: Round, send: Send): Panel {
  const id = ids();
  const many = round.requests.length > 1;
  const requests = round.requests.map((plan) => request(plan, id));
  const actions = new Map<Request, HTMLSelectElement>();
  const trouble = h("div", { class: "error form-error", tabindex: "-1", hidden: true, dir: "auto" });
  const buttons = h("div", { class: "buttons" });
  const body = h("fieldset", { class: "all" }, ...requests.map(block), trouble, h("div", { class: "bar" }, buttons));
  const element = h("div", { class: "round", role: "form", onkeydown: key }, body);
  const name = many ? round.requests.length + " questions" : round.requests[0]!.message.slice(0, 120);
  element.setAttribute("aria-label", name || "Question");
  usual();

  function block(one: Request): HTMLElement {
    if (!many) return one.element;
    const select = h(
      "select",
      {
        onchange: () => (one.element.hidden = select.value !== "accept"),
      },
      h("option", { value: "accept", disabled: !!one.plan.blocked }, one.plan.mode === "url" ? "Accept" : "Submit"),
      h("option", { value: "decline" }, "Decline"),
      h("option", { value: "cancel" }, "Cancel"),
    );
    select.value = one.plan.blocked ? "decline" : "accept";
    actions.set(one, select);
    return h("fieldset", { class: "one" }, h("legend", { dir: "auto" }, one.plan.key), h("label", {}, "Response ", select), one.element);
  }

  function usual() {
    const first = requests[0]!.plan;
    const asks = first.mode === "form" && first.fields.length > 0;
    const accept = button(many || asks ? "Submit" : "Accept", "primary", submit);
    accept.disabled = !many && first.blocked !== null;
    buttons.replaceChildren(
      accept,
      ...(many ? [] : [button("Decline", "", () => leave("decline"))]),
      button(many ? "Cancel all" : "Cancel", "quiet", () => leave("cancel")),
    );
  }

  function submit() {
    const responses = collect((one) => (actions.get(one)?.value ?? "accept") as Action);
    if (responses) send(responses);
    else requests.some((one) => one.focus(true));
  }

  function collect(action: (one: Request) => Action): Record<string, Response> | null {
    tell(null);
    const responses = requests.map((one) => [one.plan.key, one.respond(action(one))] as const);
    return responses.every(([, response]) => response) ? (Object.fromEntries(responses) as Record<string, Response>) : null;
  }

  /** Declines or cancels; asks first when something typed would be lost. */
  function leave(action: "decline" | "cancel", always = false) {
    const go = () => {
      usual();
      send(collect(() => action)!);
    };
    if (!always && !requests.some((one) => one.touched())) return go();
    const before = buttons.contains(element.ownerDocument.activeElement) ? null : active();
    const back = () => {
      usual();
      if (before?.isConnected) before.focus();
      else (buttons.firstChild as HTMLElement).focus();
    };
    const word = action === "cancel" ? "Cancel" : "Decline";
    const keep = button("Keep editing", "", back);
    buttons.replaceChildren(
      h("span", { class: "ask" }, word + " this request? What was typed is dropped."),
      button("Yes, " + word.toLowerCase(), "danger", go),
      keep,
    );
    keep.focus();
  }

  const active = () => (element.getRootNode() as Document | ShadowRoot).activeElement as HTMLElement | null;

  function key(event: KeyboardEvent) {
    if (body.disabled || event.isComposing) return;
    const asking = buttons.querySelector(".ask");
    if (event.key === "Escape") {
      event.preventDefault();
      if (asking) (buttons.lastChild as HTMLElement).click();
      else leave("cancel", true);
    }
    if (event.key !== "Enter" || event.shiftKey || event.altKey || asking) return;
    const target = event.target as HTMLElement;
    const line = target instanceof HTMLInputElement && target.type !== "radio" && target.type !== "checkbox";
    if (!(event.ctrlKey || event.metaKey || line)) return;
    event.preventDefault();
    const accept = buttons.firstChild as HTMLButtonElement;
    if (!accept.disabled) accept.click();
  }

  function tell(message: string | null) {
    trouble.textContent = message;
    trouble.hidden = !message;
  }

  return {
    round,
    element,
    close: (closed) => (body.disabled = closed),
    invalid(errors) {
      const left = requests.flatMap((one) => one.mark(errors.filter((error) => error.request_key === one.plan.key)));
      const known = new Set(round.requests.map((plan) => plan.key));
      left.push(...errors.filter((error) => !known.has(error.request_key)));
      tell(left.map((error) => error.message).join("\n") || null);
      if (!requests.some((one) => one.focus(true))) trouble.focus();
    },
    tell(message) {
      tell(message);
      if (message) trouble.focus();
    },
    focus() {
      if (!requests.some((one) => one.focus())) (buttons.firstChild as HTMLElement).focus();
    },
  };
}
