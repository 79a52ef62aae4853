import { courier } from "./courier";
import { h } from "./dom";
import type { Incoming, Model, Outgoing } from "./protocol";
import { type Panel, panel } from "./round";
import { header } from "./status";
import { summary } from "./summary";
import { followTheme } from "./theme";

const NOT_CONNECTED = "Not connected to a kernel. Nothing can be sent from here; run the cell again.";
/** How long an acknowledged answer may stay without a reply before it may be sent again. */
const REPLY_WITHIN = 30_000;

/** anywidget's `render`: draws one execution, and returns what frees it. */
function render({ model, el, signal }: { model: Model; el: HTMLElement; signal?: AbortSignal }): () => void {
  const post = courier(model);
  let live = false;
  let sending: string | null = null;
  let replyTimer: ReturnType<typeof setTimeout> | undefined;
  let current: Panel | null = null;
  /** Rounds that were answered here: their going is no surprise. */
  const answered = new Set<string>();

  const head = header(() => deliver({ kind: "cancel_run" }));
  const done = h("div", { class: "done" });
  const place = h("div", {});
  const note = h("div", { class: "say", role: "status", tabindex: "-1" });
  const root = h(
    "div",
    // The keys belong to the form: JupyterLab would take Enter for itself and run cells. The attribute stops Lumino's.
    { class: "m3nb", "data-lm-suppress-shortcuts": "true", onkeydown: (event: Event) => event.stopPropagation() },
    head.element,
    done,
    place,
    note,
  );
  const forgetTheme = followTheme(root);
  const say = (text: string) => {
    if (note.textContent !== text) note.textContent = text;
  };

  function deliver(message: Outgoing): string {
    return post.send(message, () => {
      if (message.kind === "ready" || !live) say(NOT_CONNECTED);
      else say("The kernel does not answer. What was typed is still here: try again.");
      if (message.kind === "submit") settle();
    });
  }

  function closed() {
    const shut = !live || sending !== null;
    current?.close(shut);
    head.close(!live);
  }

  function settle() {
    clearTimeout(replyTimer);
    sending = null;
    closed();
  }

  function draw() {
    const view = model.get("view");
    if (!view) return;
    const before = current;
    head.draw(view);
    // The same round is never drawn again: what a person is typing stays as it is.
    if (view.round?.round_id === before?.round.round_id) return closed();
    const hadFocus = root.contains((root.getRootNode() as Document).activeElement);
    settle();
    current = null;
    if (view.round) {
      const { round_id } = view.round;
      const made: Panel = panel(view.round, (responses) => {
        if (sending !== null || current !== made) return;
        say("Sending…");
        // Focus must not fall out of the widget while its fields are closed, or keys would reach the notebook.
        note.focus();
        sending = deliver({ kind: "submit", round_id, responses });
        closed();
      });
      current = made;
    }
    place.replaceChildren(...(current ? [current.element] : []));
    closed();
    if (before && !answered.has(before.round.round_id)) say(gone(view.state === "finished"));
    else if (view.round) say("");
    else if (before) say(view.state === "finished" ? "Done." : "Answer stored. It is being delivered.");
    if (!hadFocus) return;
    if (current && live) current.focus();
    else note.focus();
  }

  const gone = (over: boolean) =>
    over ? "The run has ended, so this request is closed." : "This request was answered elsewhere, or is no longer waiting.";

  function hear(message: Incoming) {
    if (message.kind === "ack") {
      post.acknowledge(message.id);
      if (message.id === sending) {
        clearTimeout(replyTimer);
        replyTimer = setTimeout(() => {
          settle();
          say("No reply yet. You can send it again: an answer counts once.");
        }, REPLY_WITHIN);
      }
      if (live) return;
      live = true;
      say("");
      return closed();
    }
    if (message.kind === "summary") return done.replaceChildren(...summary(message.rounds));
    if (message.round_id !== current?.round.round_id) return;
    if (message.kind === "accepted") {
      answered.add(message.round_id);
      clearTimeout(replyTimer);
      say("Answer stored. It is being delivered.");
    } else if (message.id === sending) {
      settle();
      say(message.message);
      if (message.kind === "invalid") current.invalid(message.errors);
      else current.tell(message.message);
    }
  }

  model.on("change:view", draw);
  model.on("msg:custom", hear);
  const clock = setInterval(head.tick, 1000);
  el.append(root);
  draw();
  say("Connecting to the kernel…");
  deliver({ kind: "ready" });

  function free() {
    post.stop();
    clearInterval(clock);
    clearTimeout(replyTimer);
    forgetTheme();
    model.off("change:view", draw);
    model.off("msg:custom", hear);
    root.remove();
  }
  signal?.addEventListener("abort", free, { once: true });
  return free;
}

export default { render };
