// A page without a browser: the built module's source on a stand-in for anywidget's model.

import { vi } from "vitest";
import execution from "../src/execution";
import type { Field, FormPlan, Incoming, Plan, RawValue, Round, UrlPlan, View } from "../src/protocol";

export interface Case {
  id: string;
  expect: string;
  plan: Plan;
  untouched: Record<string, RawValue> | null;
  fills: Record<string, RawValue>[];
}

declare module "vitest" {
  interface ProvidedContext {
    cases: Case[];
  }
}

export interface Letter {
  kind: string;
  id: string;
  key?: string;
  values?: Record<string, RawValue>;
  round_id?: string;
  responses?: Record<string, { action: string; values?: Record<string, RawValue> }>;
}

type Listener = (message?: unknown) => void;

export function field(given: Partial<Field> & { name: string }): Field {
  return {
    pointer: "/" + given.name,
    control: "text",
    label: given.name,
    description: null,
    required: false,
    nullable: false,
    empty: false,
    initial: null,
    options: [],
    hint: null,
    attributes: {},
    ...given,
  };
}

export function form(fields: Field[], given: Partial<FormPlan> = {}): FormPlan {
  return {
    key: "ask",
    mode: "form",
    title: null,
    message: "Please answer",
    description: null,
    fields,
    hints: [],
    blocked: null,
    ...given,
  };
}

export function url(host: string, given: Partial<UrlPlan> = {}): UrlPlan {
  return {
    key: "ask",
    mode: "url",
    message: "Please visit",
    url: { text: `https://${host}/x?y=1`, scheme: "https", host, path: "/x?y=1" },
    openable: true,
    warnings: [],
    blocked: null,
    ...given,
  };
}

export function round(requests: Plan[], id = "r1", given: Partial<Round> = {}): Round {
  return { round_id: id, index: 1, limit: null, deadline: null, requests, ...given };
}

export function view(round: Round | null, given: Partial<View> = {}): View {
  return {
    state: round ? "waiting" : "running",
    status: round ? "Waiting for your answer" : "Running",
    outcome: null,
    error: null,
    server: "shipping asks",
    operation: "book waits",
    round,
    done: [],
    again: null,
    execution_id: "e1",
    elapsed: 3,
    ...given,
  };
}

export class Page {
  sent: Letter[] = [];
  listeners = new Map<string, Set<Listener>>();
  /** Whether the line to the kernel is cut, as after a restart. */
  cut = false;
  el = document.createElement("div");
  free: () => void;

  constructor(
    private current: View,
    /** Whether Python answers each message with an `ack`. */
    public acknowledges = true,
  ) {
    document.body.replaceChildren(this.el);
    this.free = execution.render({
      model: {
        get: () => this.current,
        on: (event, listener) => {
          if (!this.listeners.has(event)) this.listeners.set(event, new Set());
          this.listeners.get(event)!.add(listener as Listener);
        },
        off: (event, listener) => void this.listeners.get(event)?.delete(listener as Listener),
        send: (content) => {
          if (this.cut) throw new Error("the comm is closed");
          const letter = content as Letter;
          this.sent.push(JSON.parse(JSON.stringify(letter)));
          if (this.acknowledges) queueMicrotask(() => this.say({ kind: "ack", id: letter.id }));
        },
      },
      el: this.el,
    });
  }

  say(message: Incoming): void {
    for (const listener of [...(this.listeners.get("msg:custom") ?? [])]) listener(message);
  }

  show(next: View): void {
    this.current = next;
    for (const listener of [...(this.listeners.get("change:view") ?? [])]) listener();
  }

  /** Lets pending acknowledgements through. */
  async settled(): Promise<void> {
    for (let i = 0; i < 4; i++) await Promise.resolve();
  }

  all<T extends Element = HTMLElement>(selector: string): T[] {
    return [...this.el.querySelectorAll<T>(selector)];
  }

  one<T extends Element = HTMLElement>(selector: string): T {
    const found = this.el.querySelector<T>(selector);
    if (!found) throw new Error("nothing matches " + selector);
    return found;
  }

  /** By its name, as assistive technology reads it, or by what it shows. */
  button(label: string): HTMLButtonElement {
    const found = this.all<HTMLButtonElement>("button").find((each) => [each.ariaLabel, each.textContent].includes(label));
    if (!found) throw new Error("no button " + label);
    return found;
  }

  /** The control or group that carries a label, as assistive technology finds it. */
  labelled<T extends HTMLElement = HTMLInputElement>(label: string, within: Element = this.el): T {
    for (const each of within.querySelectorAll<HTMLLabelElement>("label"))
      if (each.textContent === label && each.control) return each.control as HTMLElement as T;
    for (const each of within.querySelectorAll("[aria-labelledby]"))
      if (document.getElementById(each.getAttribute("aria-labelledby")!)?.textContent === label) return each as T;
    throw new Error("nothing is labelled " + label);
  }

  describedBy(element: Element): string {
    const names = element.getAttribute("aria-describedby")?.split(" ") ?? [];
    return names.map((name) => document.getElementById(name)!.textContent).join(" | ");
  }

  get said(): string {
    return this.one("[role=status]").textContent!;
  }

  submits(): Letter[] {
    return this.sent.filter((letter) => letter.kind === "submit");
  }

  values(key = "ask"): Record<string, RawValue> {
    return this.submits().at(-1)!.responses![key]!.values!;
  }
}

export async function open(requests: Plan[], given: Partial<Round> = {}): Promise<Page> {
  const page = new Page(view(round(requests, "r1", given)));
  await page.settled();
  return page;
}

export function type(box: HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement, text: string): void {
  box.focus();
  box.value = text;
  box.dispatchEvent(new Event("input", { bubbles: true }));
}

export function press(target: Element, key: string, more: KeyboardEventInit = {}): void {
  target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
}

export function fakeTimers(): void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "setInterval", "clearInterval", "Date"] });
}
