// A request to visit an address: shown whole and in parts, opened by a click only.

import { type Child, button, h, words } from "./dom";
import type { UrlPlan } from "./protocol";

/** Why the address must not be opened. Python decides; what this very browser would open has the last word. */
export function refusal({ blocked, url }: UrlPlan): string | null {
  if (blocked) return blocked;
  try {
    const { protocol, hostname } = new URL(url.text);
    if (/^https?:$/.test(protocol) && hostname === url.host.replace(/:\d+$/, "")) return null;
  } catch {
    // This browser cannot read it at all.
  }
  return "This browser reads the address differently.";
}

/** What cannot be seen is spelled out; only in addresses that are refused, so that a good one stays as it was sent. */
const visible = (text: string) =>
  text.replace(/[\p{C}\p{Z}]/gu, (each) => "\\u{" + each.codePointAt(0)!.toString(16) + "}");

/** The address in parts. `id` names the element that describes the link: the host and what to be wary of. */
export function address(plan: UrlPlan, refused: boolean, id: string): Child[] {
  const { scheme, host, path } = plan.url;
  const text = refused ? visible(plan.url.text) : plan.url.text;
  const whole = h("code", {}, text);
  const copy = button("Copy", "", () => {
    const select = () => getSelection()?.selectAllChildren(whole);
    // Without a secure context there is no clipboard: the text is selected, ready for the keyboard.
    if (!navigator.clipboard) return select();
    navigator.clipboard.writeText(text).then(() => (copy.textContent = "Copied"), select);
  });
  const part = (name: string, value: Child) => [h("dt", {}, name), h("dd", { dir: "ltr" }, value)];
  return [
    h(
      "dl",
      { class: "address" },
      ...(host ? part("Host", h("strong", { id }, host)) : []),
      ...(scheme ? part("Scheme", scheme) : []),
      ...(refused ? [] : part("Path", path || "/")),
      ...part("Address", whole),
      !refused && h("dd", {}, copy),
    ),
    plan.warnings.length > 0 &&
      h("div", { class: "wary", id: id + "w" }, ...plan.warnings.map((warning) => words("warning", warning))),
    !refused && words("hint", "Opening the link tells the server that you agree, and nothing else."),
  ];
}

/** The link itself. A click opens a new tab and is the consent, also one with the middle button. */
export function opener(plan: UrlPlan, id: string, opened: () => void): HTMLAnchorElement {
  const go = (event: Event) => {
    if (link.ariaDisabled === "true") event.preventDefault();
    else opened();
  };
  const wary = plan.warnings.length > 0;
  const link = h(
    "a",
    {
      class: wary ? "open danger" : "open primary",
      href: plan.url.text,
      target: "_blank",
      rel: "noopener noreferrer",
      "aria-describedby": id + (wary ? " " + id + "w" : ""),
      onclick: go,
      onauxclick: (event: MouseEvent) => event.button === 1 && go(event),
    },
    wary ? "Open link anyway" : "Open link",
  );
  return link;
}
