// The only way elements are made here. Text becomes text nodes: nothing is ever parsed as HTML.

export type Child = Node | string | null | undefined | false;
type Props = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

/** An element. Functions are listeners (`onclick`), `true` an empty attribute, `false` and `null` none. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child): child is Node | string => !!child));
  return element;
}

/** A block of a server's text: its own direction, line breaks kept. */
export function words(cls: string, text: string | null, id?: string): HTMLElement | null {
  return text ? h("div", { class: cls, dir: "auto", id }, text) : null;
}

/** Random text from a source that also works on plain http pages. */
export function random(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Ids that are unique in the page: every widget runs its own copy of this module. */
export function ids(): () => string {
  const prefix = "m3nb-" + random().slice(0, 8) + "-";
  let count = 0;
  return () => prefix + count++;
}

export function button(label: string, cls: string, onclick: () => void): HTMLButtonElement {
  return h("button", { type: "button", class: cls, onclick }, label);
}
