// The only way elements are made here. Text becomes text nodes: nothing is ever parsed as HTML.

export type Child = Node | string | null | undefined | false;
type Props = Record<string, string | number | boolean | null | undefined | ((event: never) => void)>;

/** An element. Functions are listeners (`onclick`), `true` an empty attribute, `false` and `null` none; text is a class. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props | string = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (typeof props === "string") props = { class: props };
  for (const name in props) {
    const value = props[name];
    if (typeof value === "function") element.addEventListener(name.slice(2), value as EventListener);
    else if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : String(value));
  }
  fill(element, children);
  return element;
}

export function fill(element: Element, children: Child[]): void {
  element.append(...children.filter((child): child is Node | string => !!child));
}

/** A block of a server's text: its own direction, line breaks kept. */
export function words(cls: string, text: string | null, id?: string): HTMLElement | null {
  return text ? h("div", { class: cls, dir: "auto", id }, text) : null;
}

/** Random text from a source that also works on plain http pages. */
export function random(): string {
  return crypto.getRandomValues(new Uint32Array(3)).join("");
}

/** Ids that are unique in the page: every widget runs its own copy of this module. */
export function ids(): () => string {
  const prefix = "m3nb-" + random() + "-";
  let count = 0;
  return () => prefix + count++;
}

export function button(label: string, cls: string, onclick: () => void): HTMLButtonElement {
  return h("button", { type: "button", class: cls, onclick }, label);
}

/** An attribute, or none when there is nothing to say. */
export function set(element: Element, name: string, value: string | false | null | undefined): void {
  value ? element.setAttribute(name, value) : element.removeAttribute(name);
}

/** The element that has the focus, also inside a shadow root. */
export const active = (near: Node) => (near.getRootNode() as Document | ShadowRoot).activeElement as HTMLElement | null;
