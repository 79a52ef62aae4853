import { h } from "./dom";
import type { Answered } from "./protocol";

const WORDS: Record<string, string> = { accept: "Accepted", decline: "Declined", cancel: "Cancelled", mixed: "Answered" };

/** The answered rounds, as Python tells them: already redacted. */
export function summary(rounds: Answered[]): HTMLElement[] {
  return rounds.map(({ action, items, at }) => {
    const when = at ? new Date(at) : null;
    const time = when && !isNaN(+when) ? when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : null;
    return h(
      "section",
      { class: "answered", "data-action": action },
      h("div", { class: "mark" }, WORDS[action] ?? action, time && h("span", { class: "clock" }, time)),
      items.length > 0 &&
        h(
          "dl",
          {},
          ...items.flatMap(({ label, text }) => [h("dt", { dir: "auto" }, label), h("dd", { dir: "auto" }, text)]),
        ),
    );
  });
}
