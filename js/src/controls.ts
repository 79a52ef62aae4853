import { type Child, button, h, words } from "./dom";
import type { Field, RawValue } from "./protocol";
import { toLocal, withOffset, zone } from "./times";

/** One field on the page. */
export interface Control {
  field: Field;
  element: HTMLElement;
  /** What would be sent: null is "omitted". Text is a reason why it cannot be sent as it stands. */
  read(): RawValue | null | string;
  touched(): boolean;
  /** Shows an error at the field, or removes it. */
  mark(message: string | null): void;
  focus(): void;
}

/** Up to this many options are all on view; more become a list to unfold. */
const ON_VIEW = 6;

interface Inner {
  /** What stands between the description and the hint. */
  body: Child[];
  /** The element that carries label, description and error. */
  main: HTMLElement;
  /** A group of controls is named by a legend, a single control by a label. */
  group?: boolean;
  read(): RawValue | null | string;
  /** The id of one more text that describes the control. */
  note?: string | undefined;
  /** The elements that carry `aria-invalid`. */
  marked?: HTMLElement[];
  first?: HTMLElement;
}

export function control(field: Field, id: () => string): Control {
  let touched = false;
  let invalid = false;
  const touch = () => {
    touched = true;
    if (invalid) mark(null);
  };
  const inner = draw(field, id, touch);
  const { main, marked = [main], first = main } = inner;
  const [labelId, noteId, hintId, errorId] = [id(), id(), id(), id()];
  const note = words("note", field.description, noteId);
  const hint = words("hint", field.hint, hintId);
  const error = h("div", { class: "error", id: errorId, dir: "auto" });
  const described = [note && noteId, hint && hintId, inner.note].filter(Boolean).join(" ");
  const head: Child[] = [
    h("span", { id: labelId, dir: "auto", class: "label" }, field.label),
    field.required ? null : h("span", { class: "optional" }, "optional"),
  ];
  const rest = [note, ...inner.body, hint, error];
  let element: HTMLElement;
  if (inner.group) {
    element = main;
    main.setAttribute("aria-labelledby", labelId);
    main.prepend(h("legend", {}, ...head));
    main.append(...rest.filter((child): child is HTMLElement => !!child));
  } else {
    main.id ||= id();
    const label = h("label", { id: labelId, for: main.id, dir: "auto", class: "label" }, field.label);
    element = h("div", { class: "field" }, h("div", { class: "head" }, label, ...head.slice(1)), ...rest);
  }
  if (field.required && !inner.group) main.setAttribute("aria-required", "true");
  describe();

  function describe() {
    const list = [described, invalid && errorId].filter(Boolean).join(" ");
    for (const one of new Set([main, ...marked]))
      list ? one.setAttribute("aria-describedby", list) : one.removeAttribute("aria-describedby");
  }
  function mark(message: string | null) {
    invalid = message !== null;
    error.textContent = message;
    element.classList.toggle("bad", invalid);
    for (const one of marked)
      invalid ? one.setAttribute("aria-invalid", "true") : one.removeAttribute("aria-invalid");
    describe();
  }
  return {
    field,
    element,
    read: () => (touched ? inner.read() : field.initial),
    touched: () => touched,
    mark,
    focus: () => (element.querySelector<HTMLElement>("input:checked") ?? first).focus(),
  };
}

function draw(field: Field, id: () => string, touch: () => void): Inner {
  const { control: kind, options } = field;
  if (kind === "boolean")
    return pick(field, id, touch, [
      { label: "Yes", raw: { bool: true } },
      { label: "No", raw: { bool: false } },
    ]);
  if (kind === "choice")
    return pick(
      field,
      id,
      touch,
      options.map((option, at) => ({ ...option, raw: { choice: at } })),
    );
  return kind === "multi" ? several(field, id, touch) : typed(field, id, touch);
}

interface Entry {
  label: string;
  description?: string | null;
  raw: RawValue | null;
}

const same = (a: RawValue | null, b: RawValue | null) => JSON.stringify(a) === JSON.stringify(b);
/** The state of an optional choice in which nothing is sent. */
const OPEN = "Unanswered";
const NULL: Entry = { label: "null", description: null, raw: { null: true } };

/** One of several: radio buttons, or a list to unfold when there are many. */
function pick(field: Field, id: () => string, touch: () => void, entries: Entry[]): Inner {
  const few = entries.length <= ON_VIEW;
  if (field.nullable) entries = [...entries, NULL];
  // A single answer that is allowed is a box to tick: never ticked beforehand, and it can be unticked.
  if (entries.length === 1) {
    const [box, element] = tick("checkbox", entries[0]!, id, touch, same(entries[0]!.raw, field.initial));
    return group([h("div", { class: "ticks" }, element)], () => (box.checked ? entries[0]!.raw : null), [box], box);
  }
  if (!few) {
    const start = entries.findIndex((entry) => same(entry.raw, field.initial));
    const select = h(
      "select",
      { oninput: touch },
      h("option", { value: -1 }, field.required ? "Choose…" : OPEN),
      ...entries.map((entry, at) =>
        h("option", { value: at, selected: at === start }, entry.label + (entry.description ? " – " + entry.description : "")),
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
  if (field.required) inner.main.setAttribute("aria-required", "true");
  inner.marked = [inner.main];
  return inner;
}

/** Any of several: check boxes. What is sent in their place, an empty list or null, excludes them. */
function several(field: Field, id: () => string, touch: () => void): Inner {
  const initial = field.initial && "choices" in field.initial ? field.initial.choices : [];
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
function specials(field: Field, empty: [RawValue, string] | null, chosen: (raw: RawValue | null) => void) {
  let value: RawValue | null = null;
  const offers: [RawValue, string][] = [];
  if (field.empty && empty) offers.push(empty);
  if (field.nullable) offers.push([NULL.raw!, NULL.label]);
  const made = offers.map(([raw, label]) => button(label, "", () => chosen(same(value, raw) ? null : raw)));
  const element = h("div", { class: "others" }, "send", ...made);
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

function group(body: Child[], read: () => RawValue | null, marked: HTMLElement[], first?: HTMLElement): Inner {
  const main = h("fieldset", { class: "field" });
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
function typed(field: Field, id: () => string, touch: () => void): Inner {
  const { control: kind } = field;
  const { placeholder = "", ...attributes } = field.attributes;
  const json = kind === "json";
  const timed = kind === "datetime" || kind === "time";
  const start = field.initial && ("text" in field.initial ? field.initial.text : "json" in field.initial ? field.initial.json : null);
  const shown = timed && start ? toLocal(start, kind === "time") : (start ?? "");
  let special = field.initial && ("null" in field.initial || (start === "" && !json)) ? field.initial : null;
  const common = { ...attributes, id: id(), oninput: () => change(null), dir: "auto", spellcheck: json ? "false" : null };
  const box: HTMLInputElement | HTMLTextAreaElement =
    json || kind === "textarea"
      ? h("textarea", { ...common, rows: 4, class: json && "json" })
      : h("input", {
          ...common,
          type: shown === null ? "text" : (INPUT_TYPES[kind] ?? "text"),
          autocomplete: kind === "password" ? "new-password" : "off",
          class: kind === "number" || kind === "integer" ? "short" : timed || kind === "date" ? "when" : null,
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
    box.placeholder = special ? ("null" in special ? "null" : "empty text") : placeholder;
    const local = box.value && withOffset(box.value);
    if (sent) sent.textContent = zone() + (local ? ", sent as " + local : "");
  }
  show();
  return {
    // After the box in the order of keys, at the end of the label's line for the eye.
    body: [
      box,
      others.element,
      sent,
    ],
    main: box,
    note: sent?.id,
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
