import { button, h } from "./dom";
import type { View } from "./protocol";
import { duration } from "./times";

export interface Header {
  element: HTMLElement;
  draw(view: View): void;
  /** Moves the clocks on; call it about once a second. */
  tick(): void;
  close(closed: boolean): void;
}

const HURRY = 60;

/** Who asks, what waits, how long, and the button that cancels the run. */
export function header(cancelRun: () => void): Header {
  let view: View | undefined;
  let seen = 0;
  let closed = false;
  let asking = false;
  const dot = h("span", { class: "dot", "aria-hidden": "true" });
  const status = h("span", { class: "state", "aria-live": "polite" });
  const who = h("span", { class: "who", dir: "auto" });
  const clock = h("span", "clock");
  const deadline = h("span", "clock deadline");
  const stop = h("span", "stop");
  const failure = h("div", { class: "error form-error", dir: "auto", hidden: true });
  const element = h(
    "div",
    { class: "header" },
    h("div", "line", dot, status, who, h("div", "tools", deadline, clock, stop)),
    failure,
  );

  function offer(ask = false) {
    asking = ask;
    const over = view?.preview || view?.state === "finished";
    const first = button(ask ? "Yes, cancel the run" : "Cancel run", ask ? "danger" : "quiet", () => {
      if (!ask) return offer(true);
      offer();
      cancelRun();
    });
    const keep = button("Keep it", "", () => (offer(), (stop.firstChild as HTMLElement).focus()));
    first.disabled = keep.disabled = closed;
    stop.replaceChildren(...(over ? [] : ask ? [first, keep] : [first]));
    if (ask) keep.focus();
  }

  function tick() {
    if (!view) return;
    const over = closed || view.state === "finished";
    const passed = (Date.now() - seen) / 1000;
    clock.textContent = over || view.elapsed === null ? "" : duration(view.elapsed + passed);
    const left = view.round?.deadline ? (Date.parse(view.round.deadline) - Date.now()) / 1000 : NaN;
    deadline.textContent = isNaN(left) ? "" : left > 0 ? "answer within " + duration(left) : "time is up";
    deadline.classList.toggle("hurry", left < HURRY);
  }

  return {
    element,
    draw(next) {
      const changed = !view || (view.state === "finished") !== (next.state === "finished");
      view = next;
      seen = Date.now();
      element.dataset["state"] = view.state;
      element.dataset["outcome"] = view.outcome ?? "";
      status.textContent = view.status;
      const turn = view.round && (view.round.index > 1 || (view.round.limit ?? 1) > 1);
      const nth = turn ? ` · question ${view.round!.index}${view.round!.limit ? " of at most " + view.round!.limit : ""}` : "";
      who.textContent = [view.server, view.operation].filter(Boolean).join(" · ") + nth;
      failure.textContent = view.error;
      failure.hidden = !view.error;
      tick();
      if (changed) offer();
    },
    tick,
    close(value) {
      if (closed === value) return;
      closed = value;
      if (view) offer(asking && !closed);
      tick();
    },
  };
}
