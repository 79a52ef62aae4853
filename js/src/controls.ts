import { type Child, button, fill, h, set, words } from "./dom";
import { list, object, union } from "./nested";
import type { Field, RawValue } from "./protocol";
import { toLocal, withOffset, zone } from "./times";

/** What a control needs of the form around it. */
export interface Context {
  id(): string;
  /** Something was typed or chosen. */
  changed(): void;
  /** Says it to whoever does not see it. */
  say(text: string): void;
}

/** Hears what cannot be sent as it stands. */
export type Wrong = (one: Control, message: string) => void;

/** One field on the page. */
export interface Control {
  field: Field;
  element: HTMLElement;
  /** What would be sent: null is "omitted". */
  read(wrong?: Wrong): RawValue | null;
  /** Shows an error at the field, or removes it. */
  mark(message: string | null): void;
  bad(): boolean;
  focus(): void;
  rename(label: string): void;
  /** Takes over a changed plan and keeps what was typed; false: it has to be drawn anew. */
  update(field: Field): boolean;
  /** The controls inside that are drawn now. */
  nested(): Control[];
  /** Unfolds it. */
  open(): void;
}

/** Up to this many options are all on view; more become a list to unfold. */
const ON_VIEW = 6;

export interface Inner {
  /** What stands between the description and the hint. */
  body: Child[];
  /** The element that carries label, description and error. */
  main: HTMLElement;
  /** A group of controls is named by a legend, a single control by a label. */
  group?: boolean;
  /** Text is a reason why it cannot be sent as it stands. */
  read(wrong?: Wrong): RawValue | null | string;
  /** One more text that describes the control. */
  note?: HTMLElement | null;
  /** The elements that carry `aria-invalid`. */
  marked?: HTMLElement[];
  first?: HTMLElement;
  /** Of what holds other controls. */
  nest?: Pick<Control, "nested" | "focus" | "update" | "open">;
}

/** What cannot change without drawing a control anew. */
const fixed = (field: Field) =>
  JSON.stringify([
    field.control,
    field.options,
    field.nullable,
    field.empty,
    field.readonly,
    /bool|choi|mult/.test(field.control) && field.required,
  ]);

export function control(field: Field, context: Context): Control {
  if (field.initial?.absent) field = { ...field, initial: null };
  if (field.control === "union") return union(field, context);
  const { id } = context;
  const { initial } = field;
  let touched = false;
  let invalid = false;
  const touch = () => {
    touched = true;
    if (invalid) self.mark(null);
    context.changed();
  };
  const inner = draw(field, context, touch);
  const { main, group, nest, marked = [main], first = main } = inner;
  main.id ||= id();
  const label = h(group ? "span" : "label", { id: id(), for: group ? null : main.id, class: "label" });
  const flags = h("span", "optional");
  const head = h(group ? "legend" : "div", "head", label, flags);
  // The direction of the label, whose text comes first, is the field's.
  const element = group ? main : h("div", { class: "field", dir: "auto" });
  fill(element, [head, ...inner.body]);
  if (group) main.setAttribute("aria-labelledby", label.id);
  // Most fields say nothing more, and elements cost: these are made when there is something to say.
  const lines: Partial<Record<"note" | "hint" | "error", HTMLElement>> = {};

  function line(cls: keyof typeof lines, text: string | null) {
    const made = lines[cls];
    if (made || !text) return made && (made.textContent = text);
    const one = (lines[cls] = words(cls, text, id())!);
    if (cls === "note") head.after(one);
    else if (cls === "hint" && lines.error) lines.error.before(one);
    else element.append(one);
  }
  function describe() {
    const said = [lines.note, lines.hint, inner.note, lines.error];
    const list = said.flatMap((each) => (each?.textContent ? each.id : [])).join(" ");
    for (const one of new Set([main, ...marked])) set(one, "aria-describedby", list);
  }
  function dress() {
    const { required, deprecated, readonly } = self.field;
    label.textContent = self.field.label;
    line("note", self.field.description);
    line("hint", self.field.hint);
    flags.textContent = [!required && "optional", readonly && "read only", deprecated && "deprecated"]
      .filter(Boolean)
      .join(" · ");
    if (!group || main.role === "radiogroup") set(main, "aria-required", required && "true");
    describe();
  }
  const self: Control = {
    field,
    element,
    read(wrong) {
      const value = touched || nest ? inner.read(wrong) : initial;
      if (typeof value !== "string") return value;
      wrong?.(self, value);
      return null;
    },
    mark(message) {
      invalid = message !== null;
      line("error", message);
      element.classList.toggle("bad", invalid);
      for (const one of marked) set(one, "aria-invalid", invalid && "true");
      describe();
    },
    bad: () => invalid,
    focus: () => (nest ? nest.focus() : (element.querySelector<HTMLElement>("input:checked") ?? first).focus()),
    rename: (text) => (label.textContent = text),
    update(next) {
      if (fixed(next) !== fixed(self.field) || nest?.update(next) === false) return false;
      self.field = next;
      dress();
      return true;
    },
    nested: () => nest?.nested() ?? [],
    open: () => nest?.open(),
  };
  dress();
  if (field.readonly)
    for (const each of element.querySelectorAll<HTMLInputElement>("input, select, textarea, button"))
      each.matches("[dir]") ? (each.readOnly = true) : (each.disabled = true);
  return self;
}

function draw(field: Field, context: Context, touch: () => void): Inner {
  const { control: kind, options } = field;
  if (kind === "object") return object(field, context, touch);
  if (kind === "list") return list(field, context, touch);
  if (kind === "boolean")
    return pick(field, context, touch, [
      { label: "Yes", raw: { bool: true } },
      { label: "No", raw: { bool: false } },
    ]);
  if (kind === "choice")
    return pick(
      field,
      context,
      touch,
      options.map((option, at) => ({ ...option, raw: { choice: at } })),
    );
  return kind === "multi" ? several(field, context, touch) : typed(field, context, touch);
}

interface Entry {
  label: string;
  description?: string | null;
  raw: RawValue | null;
}

export const same = (a: RawValue | null, b: RawValue | null) => JSON.stringify(a) === JSON.stringify(b);
/** The state of an optional choice in which nothing is sent. */
const OPEN = "Unanswered";
const NULL: Entry = { label: "null", description: null, raw: { null: true } };

/** One of several: radio buttons, or a list to unfold when there are many. */
function pick(field: Field, { id }: Context, touch: () => void, entries: Entry[]): Inner {
  const few = entries.length <= ON_VIEW;
  if (field.nullable) entries = [...entries, NULL];
  // A single answer that is allowed is a box to tick: never ticked beforehand, and it can be unticked.
  if (entries.length === 1) {
    const [box, element] = tick("checkbox", entries[0]!, id, touch, same(entries[0]!.raw, field.initial));
    return group([h("div", "ticks", element)], () => (box.checked ? entries[0]!.raw : null), [box], box);
  }
  if (!few) {
    const start = entries.findIndex((entry) => same(entry.raw, field.initial));
    const select = h(
      "select",
      { oninput: touch },
      h("option", { value: -1 }, field.required ? "Choose…" : OPEN),
      ...entries.map((entry, at) =>
        h("option", { value: at }, entry.label + (entry.description ? " – " + entry.description : "")),
      ),
    );
    select.value = String(start);
    return { body: [select], main: select, read: () => entries[+select.value]?.raw ?? null };
  }
  if (!field.required) entries = [{ label: OPEN, raw: null }, ...entries];
  const name = id();
  const boxes = entries.map((entry) =>
    tick("radio", entry, id, touch, same(entry.raw, field.initial), name),
  );
  const inner = group(
    [ticks(entries, boxes)],
    () => entries[boxes.findIndex(([box]) => box.checked)]?.raw ?? null,
    [],
    boxes[0]![0],
  );
  inner.main.setAttribute("role", "radiogroup");
  inner.marked = [inner.main];
  return inner;
}

/** Any of several: check boxes. What is sent in their place, an empty list or null, excludes them. */
function several(field: Field, { id }: Context, touch: () => void): Inner {
  const initial = field.initial?.choices ?? [];
  const boxes = field.options.map((option, at) =>
    tick("checkbox", { ...option, raw: null }, id, () => choose(null), initial.includes(at)),
  );
  const bare = field.required && field.empty;
  const none = tick("checkbox", { label: "None of these", raw: null }, id, () => choose(none[0].checked ? EMPTY_LIST : null), false);
  const shown = bare ? [...boxes, none] : boxes;
  const others = specials(field, bare ? null : [EMPTY_LIST, "empty list"], (raw) => choose(raw));
  const start = field.initial && !initial.length ? field.initial : null;
  others.set(start, initial.length > 0);
  none[0].checked = same(start, EMPTY_LIST);
  function choose(raw: RawValue | null) {
    touch();
    none[0].checked = same(raw, EMPTY_LIST);
    if (raw) for (const [box] of boxes) box.checked = false;
    others.set(raw, boxes.some(([box]) => box.checked));
  }
  return group(
    [ticks(field.options, shown), others.element],
    () => {
      const choices = boxes.flatMap(([box], at) => (box.checked ? [at] : []));
      return others.value() ?? (choices.length ? { choices } : null);
    },
    boxes.map(([box]) => box),
    boxes[0]?.[0],
  );
}

const EMPTY_LIST: RawValue = { choices: [] };

/**
 * Buttons for the values that cannot be typed: null, and what is empty on purpose. They are there while nothing is
 * typed, so that a filled form has no more stops for the Tab key than it has fields.
 */
export function specials(field: Field, empty: [RawValue, string] | null, chosen: (raw: RawValue | null) => void) {
  let value: RawValue | null = null;
  const offers: [RawValue, string][] = [];
  if (field.empty && empty) offers.push(empty);
  if (field.nullable) offers.push([NULL.raw!, NULL.label]);
  const made = offers.map(([raw, label]) => button(label, "", () => chosen(same(value, raw) ? null : raw)));
  const element = h("div", "others", "send", ...made);
  return {
    element: made.length > 0 && element,
    value: () => value,
    set(raw: RawValue | null, filled: boolean) {
      value = raw;
      element.hidden = filled;
      made.forEach((each, at) => each.setAttribute("aria-pressed", String(same(offers[at]![0], raw))));
    },
  };
}

/** Short answers stand in a row, longer ones below each other. */
function ticks(entries: { label: string; description?: string | null }[], made: Ticked[]): HTMLElement {
  const short = entries.every((entry) => entry.label.length < 24 && !entry.description);
  return h("div", { class: short ? "ticks row" : "ticks" }, ...made.map(([, element]) => element));
}

export function group(body: Child[], read: () => RawValue | null, marked: HTMLElement[], first?: HTMLElement): Inner {
  const main = h("fieldset", { class: "field", dir: "auto" });
  return { body, main, group: true, read, marked, first: first ?? main };
}

type Ticked = [HTMLInputElement, HTMLElement];

function tick(
  type: "radio" | "checkbox",
  entry: Entry,
  id: () => string,
  onchange: () => void,
  checked: boolean,
  name?: string,
): Ticked {
  const [own, note] = [id(), id()];
  const box = h("input", { type, id: own, name, onchange, checked, "aria-describedby": entry.description && note });
  return [
    box,
    h(
      "div",
      { class: entry.raw || type === "checkbox" ? "tick" : "tick none" },
      box,
      h("label", { for: own, dir: "auto" }, entry.label),
      words("note", entry.description ?? null, note),
    ),
  ];
}

const INPUT_TYPES: Record<string, string> = {
  date: "date",
  datetime: "datetime-local",
  time: "time",
  password: "password",
};

/** Everything that is typed. Numbers and addresses are plain text boxes, so that what was typed arrives exactly. */
function typed(field: Field, { id }: Context, touch: () => void): Inner {
  const { control: kind } = field;
  const { placeholder = "", ...attributes } = field.attributes;
  const json = kind === "json";
  const timeOnly = kind === "time";
  const timed = timeOnly || kind === "datetime";
  const start = field.initial?.text ?? field.initial?.json;
  const shown = timed && start ? toLocal(start, timeOnly) : (start ?? "");
  let special = start || (json && start === "") ? null : field.initial;
  const common = { ...attributes, id: id(), oninput: () => change(null), dir: "auto", spellcheck: json ? "false" : null };
  const box: HTMLInputElement | HTMLTextAreaElement =
    json || kind === "textarea"
      ? h("textarea", { ...common, rows: 4, class: json && "json" })
      : h("input", {
          ...common,
          type: shown === null ? "text" : (INPUT_TYPES[kind] ?? "text"),
          autocomplete: kind === "password" ? "new-password" : "off",
          class: /^(num|int)/.test(kind) ? "short" : timed || kind === "date" ? "when" : null,
        });
  box.value = shown ?? start ?? "";
  const asTyped = shown === null || !timed;
  const sent = asTyped ? null : h("div", { class: "hint", id: id() });
  const others = specials(field, [{ text: "" }, "empty text"], (raw) => {
    box.focus();
    box.value = "";
    change(raw);
  });
  function change(value: RawValue | null) {
    touch();
    special = value;
    show();
  }
  function show() {
    others.set(special, box.value !== "");
    box.placeholder = special ? (special.null ? "null" : "empty text") : placeholder;
    const local = box.value && withOffset(box.value);
    if (sent) sent.textContent = zone() + (local ? ", sent as " + local : "");
  }
  show();
  return {
    // After the box in the order of keys, at the end of the label's line for the eye.
    body: [box, others.element, sent],
    main: box,
    note: sent,
    read() {
      if (box.validity?.badInput) return "This is not complete yet.";
      const text = box.value;
      if (special && !text) return special;
      if (json) return text.trim() ? { json: text } : null;
      if (!text) return null;
      if (asTyped) return { text };
      const local = withOffset(text);
      return local ? { text: local } : "There is no such time.";
    },
  };
}
