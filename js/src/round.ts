import { active, button, h, ids } from "./dom";
import type { Action, FieldError, Replan, Response, Round, Values } from "./protocol";
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
  /** The requests of which the server says that they are done. */
  done(keys: string[]): void;
  /** The fields of a live form as they are now. */
  replan(news: Replan): void;
  focus(): void;
  touched(): boolean;
  /** The round is gone: what was typed may still start the run again, or go too. */
  late(dismiss: () => void): void;
}

type Send = (responses: Record<string, Response>) => void;
/** Something was typed into a live form; `read` tells what would be sent. */
type Check = (key: string, read: () => Values) => void;

/** One request among several: what was decided about it, and where that is shown. */
interface Block {
  one: Request;
  decision: Action | null;
  choose(action: Action): void;
  /** Says that a decision is missing. */
  missing(yes: boolean): void;
  toggles: HTMLButtonElement[];
}

export function panel(round: Round, send: Send, check: Check): Panel {
  const id = ids();
  const many = round.requests.length > 1;
  const hush = h("div", { class: "hush", "aria-live": "polite" });
  const say = (text: string) => (hush.textContent = text);
  const requests = round.requests.map((plan) => request(plan, { id, say }, (read) => check(plan.key, read)));
  const onlyLinks = round.requests.every((plan) => plan.mode === "url");
  const blocks: Block[] = [];
  const links: HTMLElement[] = [];
  /** What Enter presses. A link is opened by its own click only. */
  let enter: HTMLButtonElement | null = null;
  /** Set once it is too late for an answer. */
  let dismiss: (() => void) | null = null;
  const trouble = h("div", { class: "error form-error", tabindex: "-1", hidden: true, dir: "auto" });
  const buttons = h("div", "buttons");
  const body = h("fieldset", { class: "all" }, ...requests.map(block), trouble, h("div", "bar", buttons));
  const called = round.arguments;
  const details =
    called &&
    h("details", {}, h("summary", {}, "What it was called with"), h("pre", { tabindex: 0, dir: "auto" }, called));
  const touched = () => requests.some((one) => one.touched());
  const element = h("div", { class: "round", role: "form", tabindex: "-1", onkeydown: key }, details, body, hush);
  const name = many ? round.requests.length + " questions" : round.requests[0]!.message.slice(0, 120);
  element.setAttribute("aria-label", name || "Question");
  usual();

  /** The link of a request, if it has one that may be opened. */
  function linked(one: Request, opened: () => void): HTMLElement[] {
    const link = one.link(opened);
    if (link) links.push(link);
    return link ? [link] : [];
  }

  function block(one: Request, at: number): HTMLElement {
    if (!many) return one.element;
    const url = one.plan.mode === "url";
    const problem = h("div", { class: "error", id: id() });
    const choices: [Action, string][] = [
      ["decline", "Decline"],
      ["cancel", "Cancel"],
    ];
    // What cannot be accepted is not declined in anybody's name either: somebody decides.
    if (!url || !one.blocked) choices.unshift(["accept", url ? "I opened it myself" : "Answer"]);
    const toggles = choices.map(([action, label]) => button(label, "", () => made.choose(action)));
    const made: Block = {
      one,
      decision: null,
      toggles,
      choose(action) {
        made.decision = action;
        made.missing(false);
        one.fold(action !== "accept");
        toggles.forEach((each, nth) => each.setAttribute("aria-pressed", String(choices[nth]![0] === action)));
        if (onlyLinks && blocks.every((each) => each.decision)) submit();
      },
      missing: (yes) => (problem.textContent = yes ? "Not decided yet." : ""),
    };
    const group = { class: "buttons", role: "group", "aria-label": "Your response", "aria-describedby": problem.id };
    const row = h("div", group, ...linked(one, () => made.choose("accept")), ...toggles);
    blocks.push(made);
    if (!url && !one.blocked) made.choose("accept");
    const legend = h("legend", { dir: "auto" }, `${at + 1} of ${round.requests.length}`, h("span", "optional", one.plan.key));
    one.element.append(row, problem);
    return h("fieldset", { class: "one" }, legend, one.element);
  }

  function usual() {
    const [first] = requests as [Request];
    const { plan } = first;
    const accept = () => send({ [plan.key]: { action: "accept" } });
    const asks = many || (plan.mode === "form" && plan.fields.length > 0);
    const word = dismiss ? "Run again with this answer" : asks ? "Submit" : "Accept";
    enter = !many && plan.mode === "url" ? null : button(word, "primary", submit);
    fit();
    links.length = many ? links.length : 0;
    buttons.replaceChildren(
      ...(enter ? [enter] : [...linked(first, accept), ...(first.blocked ? [] : [button("I opened it myself", "", accept)])]),
      ...(many || dismiss ? [] : [button("Decline", "", () => leave("decline"))]),
      dismiss
        ? button("Dismiss", "quiet", dismiss)
        : button(many ? "Cancel all" : "Cancel", "quiet", () => leave("cancel")),
    );
  }

  function fit() {
    if (enter) enter.disabled = !many && !!requests[0]!.blocked;
    for (const { one, toggles } of blocks) if (one.plan.mode === "form") toggles[0]!.disabled = !!one.blocked;
  }

  function submit() {
    const open = blocks.filter((each) => !each.decision || (each.one.blocked && each.decision === "accept"));
    for (const each of open) each.missing(true);
    const responses = collect((one) => blocks.find((each) => each.one === one)?.decision ?? "accept");
    if (open.length) open[0]!.toggles.find((each) => !each.disabled)!.focus();
    else if (responses) send(responses);
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
    if (!always && !touched()) return go();
    const before = buttons.contains(active(element)) ? null : active(element);
    const back = () => {
      usual();
      if (before?.isConnected) before.focus();
      else (buttons.lastChild as HTMLElement).focus();
    };
    const word = action === "cancel" ? "Cancel" : "Decline";
    const keep = button(onlyLinks ? "Go back" : "Keep editing", "", back);
    const lost = touched() ? " What was typed is dropped." : "";
    buttons.replaceChildren(
      h("span", "ask", `${word} ${many ? "all requests" : "this request"}?${lost}`),
      button("Yes, " + word.toLowerCase(), "danger", go),
      keep,
    );
    keep.focus();
  }

  function key(event: KeyboardEvent) {
    if (body.disabled || event.isComposing) return;
    const asking = buttons.querySelector(".ask");
    if (event.key === "Escape") {
      event.preventDefault();
      if (asking) (buttons.lastChild as HTMLElement).click();
      else if (!dismiss) leave("cancel", true);
    }
    if (event.key !== "Enter" || event.shiftKey || event.altKey || asking) return;
    const target = event.target as HTMLElement;
    const line = target instanceof HTMLInputElement && !/radio|checkbox|search/.test(target.type);
    if (!enter || target.matches("a") || !(event.ctrlKey || event.metaKey || line)) return;
    event.preventDefault();
    if (!enter.disabled) enter.click();
  }

  function tell(message: string | null) {
    trouble.textContent = message;
    trouble.hidden = !message;
  }

  return {
    round,
    element,
    close(closed) {
      body.disabled = closed;
      for (const link of links) link.ariaDisabled = String(closed);
    },
    done(keys) {
      for (const one of requests) one.done(keys.includes(one.plan.key));
    },
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
    replan({ key, fields, blocked }) {
      requests.find((one) => one.plan.key === key)?.replan(fields, blocked);
      fit();
    },
    focus() {
      // Never to a link: who just pressed Enter would open it.
      if (!requests.some((one) => one.focus())) (enter ?? element).focus();
    },
    touched,
    late(gone) {
      if (dismiss) return;
      const had = buttons.contains(active(element));
      dismiss = gone;
      usual();
      if (had) enter?.focus();
    },
  };
}
