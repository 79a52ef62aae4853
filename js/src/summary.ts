import { h } from "./dom";
import type { Answered } from "./protocol";

const WORDS: Record<string, string> = { accept: "Accepted", decline: "Declined", cancel: "Cancelled", mixed: "Answered" };

/** The answered rounds, as Python tells them: already redacted. */
export function summary(rounds: Answered[]): HTMLElement[] {
  return rounds.map(({ action, items, at }) => {
    const time = at && new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    return h(
      "section",
      { class: "answered", "data-action": action },
      h("div", "mark", WORDS[action] ?? action, time && h("span", "clock", time)),
      items.length > 0 &&
        h(
          "dl",
          {},
          ...items.flatMap(({ label, text }) => [h("dt", { dir: "auto" }, label), h("dd", { dir: "auto" }, text)]),
        ),
    );
  });
}
