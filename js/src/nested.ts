// What holds other controls: objects, lists, and a choice between kinds of answers.

import { type Context, type Control, control, group, type Inner, specials, type Wrong } from "./controls";
import { active, button, h, set } from "./dom";
import type { Branch, Field, RawValue, Values } from "./protocol";

/** A run of fields, in the order of the plan. */
export interface Fields {
  element: HTMLElement;
  controls(): Control[];
  /** Draws other fields; the ones that stay keep their elements, what was typed and the focus. */
  set(fields: Field[]): void;
  read(wrong?: Wrong): Values;
}

export function fields(first: Field[], context: Context, given?: Values | null): Fields {
  const element = h("div", "fields");
  // Those that went are kept, for when they come back.
  const known = new Map<string, Control>();
  let shown: Control[] = [];
  function draw(plan: Field[]) {
    const focused = active(element);
    const at = shown.findIndex((one) => one.element.contains(focused));
    shown = plan.map((field) => {
      const key = field.pointer + " " + field.control;
      const old = known.get(key);
      const made = old ? renewed(old, field, context) : control(field, context);
      known.set(key, made);
      return made;
    });
    const wanted: Element[] = shown.map((one) => one.element);
    for (const child of [...element.children]) if (!wanted.includes(child)) child.remove();
    wanted.forEach((child, nth) => {
      const there = element.children[nth];
      if (there !== child) element.insertBefore(child, there ?? null);
    });
    if (at >= 0 && active(element) !== focused) (shown[at] ?? shown.at(-1))?.focus();
  }
  draw(
    first.map((field) =>
      given ? { ...field, initial: Object.hasOwn(given, field.name) ? given[field.name]! : null } : field,
    ),
  );
  return {
    element,
    controls: () => shown,
    set: draw,
    read(wrong) {
      const values = shown.map((one) => [one.field.name, one.read(wrong)] as const);
      // fromEntries also keeps a property that is called __proto__.
      return Object.fromEntries(values.filter(([, value]) => value)) as Values;
    },
  };
}

/** The same control for a changed plan, or if that cannot be another one with what was typed in it. */
function renewed(old: Control, field: Field, context: Context): Control {
  return old.update(field) ? old : control({ ...field, initial: carried(old, field) }, context);
}

/** What was chosen, as its place among the new options or branches. */
function carried(old: Control, next: Field): RawValue | null {
  const raw = old.field.control === next.control ? old.read() : null;
  const names = (field: Field) => field.branches ?? field.options;
  const place = (at: number) => names(next).findIndex(({ label }) => label === names(old.field)[at]?.label);
  if (raw?.choices) return { choices: raw.choices.map(place).filter((at) => at >= 0) };
  const chosen = raw?.choice ?? raw?.branch;
  if (chosen === undefined) return raw;
  const at = place(chosen);
  return at < 0 ? null : raw!.branch === undefined ? { choice: at } : { ...raw, branch: at };
}

/** An optional object is added on purpose, and taken away again; what was typed comes back with it. */
export function object(field: Field, context: Context, touch: () => void): Inner {
  const { initial } = field;
  const given = initial?.fields;
  const inside = fields(field.fields!, { ...context, changed: touch }, given);
  let added = !!given;
  let open = false;
  const toggle = button("", "", () => {
    added = !open;
    fold(open);
    touch();
    context.say(`${field.label} ${open ? "added" : "removed"}.`);
    if (open) focus();
  });
  const others = specials(field, null, (raw) => {
    fold(true, raw);
    touch();
  });
  function fold(folded: boolean, raw: RawValue | null = null) {
    open = !folded;
    inside.element.hidden = folded;
    toggle.textContent = open ? "Remove" : "Add";
    toggle.ariaLabel = `${toggle.textContent} ${field.label}`;
    toggle.hidden = field.required && !field.nullable && open;
    others.set(raw, open);
  }
  const focus = () => ((open && first(inside.controls())) || toggle).focus();
  const nothing = initial?.null ? initial : null;
  fold(!!nothing || !(given || field.required), nothing);
  return {
    ...group([toggle, others.element, inside.element], () => null, [toggle], toggle),
    read(wrong) {
      if (!open) return others.value();
      const values = inside.read(wrong);
      return field.required || added || Object.keys(values).length ? { fields: values } : null;
    },
    nest: {
      nested: () => (open ? inside.controls() : []),
      focus,
      open: () => open || fold(false),
      update(next) {
        field = next;
        inside.set(next.fields!);
        fold(!open && !(field.required && !others.value()), others.value());
        return true;
      },
    },
  };
}

/** The first control that can be typed into. */
export const first = (controls: Control[]) => controls.find((one) => !one.field.readonly);

interface Row {
  one: Control;
  element: HTMLElement;
  buttons: HTMLButtonElement[];
}

const EMPTY: RawValue = { items: [] };
const ABSENT: RawValue = { absent: true };

/** Items that are added, moved and removed. */
export function list(field: Field, context: Context, touch: () => void): Inner {
  const inside = { ...context, changed: touch };
  const rows: Row[] = [];
  const element = h("div", "fields");
  const why = h("div", { class: "hint", id: context.id() });
  const others = specials(field, [EMPTY, "empty list"], (raw) => {
    touch();
    others.set(raw, false);
  });
  const noun = () => field.item!.label || field.label;
  const add = button("Add", "", () => {
    if (refused(add)) return;
    const { one } = row(field.item!);
    changed(`${noun()} ${rows.length} added`);
    one.focus();
  });

  function row(plan: Field): Row {
    const one = control(plan, inside);
    const buttons = [
      button("↑", "", () => move(made, -1, 0)),
      button("↓", "", () => move(made, 1, 1)),
      button("×", "", () => drop(made)),
    ];
    const made = { one, buttons, element: h("div", "item", one.element, h("div", "buttons moves", ...buttons)) };
    rows.push(made);
    element.append(made.element);
    return made;
  }

  function move(made: Row, by: number, nth: number) {
    if (refused(made.buttons[nth]!)) return;
    const at = rows.indexOf(made);
    const other = rows[at + by]!;
    rows[at + by] = made;
    rows[at] = other;
    // The neighbour moves in the page, so that the focus stays.
    by < 0 ? made.element.after(other.element) : made.element.before(other.element);
    changed(`${noun()} ${at + 1} moved to ${at + by + 1}`);
  }

  function drop(made: Row) {
    if (refused(made.buttons[2]!)) return;
    const at = rows.indexOf(made);
    rows.splice(at, 1);
    made.element.remove();
    changed(`${noun()} ${at + 1} removed`);
    ((rows[at] ?? rows.at(-1))?.buttons[2] ?? add).focus();
  }

  function changed(what: string) {
    fit();
    touch();
    context.say(`${what}, ${rows.length} in all.`);
  }

  /** What is refused stays in reach of the keyboard and says why. */
  function refused(which: HTMLButtonElement): boolean {
    const no = which.ariaDisabled === "true";
    if (no) context.say(which.title);
    return no;
  }

  function fit() {
    const { min = 0, max, required } = field;
    const few = required && min && rows.length <= min ? `Not fewer than ${min}.` : "";
    const many = rows.length >= (max ?? Infinity) ? `Not more than ${max}.` : "";
    const rule = (which: HTMLButtonElement, reason: string, label: string) => {
      set(which, "aria-label", label);
      set(which, "aria-disabled", reason && "true");
      which.title = reason || label;
    };
    rule(add, many, "Add " + noun());
    rows.forEach(({ one, buttons }, at) => {
      const name = noun() + " " + (at + 1);
      one.rename(name);
      rule(buttons[0]!, at ? "" : "Already first.", "Move up: " + name);
      rule(buttons[1]!, at < rows.length - 1 ? "" : "Already last.", "Move down: " + name);
      rule(buttons[2]!, few, "Remove " + name);
    });
    why.textContent = [few, many].join(" ").trim();
    others.set(rows.length ? null : others.value(), rows.length > 0);
  }

  const { initial } = field;
  for (const raw of initial?.items ?? []) row({ ...field.item!, initial: raw });
  others.set(initial, false);
  fit();
  return {
    ...group([element, add, others.element, why], () => null, [add], add),
    note: why,
    read: (wrong) =>
      rows.length ? { items: rows.map(({ one }) => one.read(wrong) ?? ABSENT) } : others.value(),
    nest: {
      nested: () => rows.map(({ one }) => one),
      focus: () => (first(rows.map(({ one }) => one)) ?? add).focus(),
      open() {},
      update(next) {
        field = next;
        for (const row of rows) {
          const old = row.one;
          row.one = renewed(old, next.item!, inside);
          if (row.one !== old) old.element.replaceWith(row.one.element);
        }
        fit();
        return true;
      },
    },
  };
}

const inBranch = ({ fields, field }: Branch) => fields ?? (field ? [field] : []);

/** A choice that brings its own fields; what was typed into another branch is kept while the form lives. */
export function union(field: Field, context: Context): Control {
  const { initial } = field;
  const from = initial?.branch ?? -1;
  const made: Fields[] = [];
  let shown = -1;
  const area = h("div", { class: "nest", role: "group" });
  const asChoice = (from: Field, value: RawValue | null): Field => ({
    ...from,
    control: "choice",
    // Without what is in them: branches whose fields change are the same choice.
    options: from.branches!.map((each) => ({ ...each, fields: null, field: null })),
    initial: value,
  });
  const changed = () => {
    show();
    context.changed();
  };
  const head = control(asChoice(field, from < 0 ? initial : { choice: from }), { ...context, changed });
  function show() {
    const at = head.read()?.choice ?? -1;
    if (at === shown) return;
    shown = at;
    const branch = field.branches![at];
    area.replaceChildren();
    area.hidden = !branch;
    if (!branch) return;
    area.ariaLabel = branch.label;
    made[at] ??= fields(inBranch(branch), { ...context, changed: touch }, at === from ? (initial!.fields ?? { [branch.field?.name ?? ""]: initial!.field! }) : null);
    area.append(made[at].element);
  }
  const touch = () => {
    if (head.bad()) head.mark(null);
    context.changed();
  };
  show();
  return {
    ...head,
    field,
    element: h("div", "union", head.element, area),
    read(wrong) {
      const inside = made[shown];
      if (shown < 0 || !inside) return head.read(wrong);
      const branch = { branch: shown };
      if (field.branches![shown]!.fields) return { ...branch, fields: inside.read(wrong) };
      const only = inside.controls()[0]!.read(wrong);
      return only ? { ...branch, field: only } : branch;
    },
    update(next) {
      if (next.branches!.length !== field.branches!.length || !head.update(asChoice(next, null))) return false;
      this.field = field = next;
      next.branches!.forEach((branch, at) => made[at]?.set(inBranch(branch)));
      return true;
    },
    nested: () => made[shown]?.controls() ?? [],
  };
}
