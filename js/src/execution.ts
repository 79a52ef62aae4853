import { courier } from "./courier";
import { h } from "./dom";
import type { Incoming, Model, Outgoing, Round, View } from "./protocol";
import { type Panel, panel } from "./round";
import { header } from "./status";
import { summary } from "./summary";
import { followTheme } from "./theme";

const NOT_CONNECTED =
  "Not connected to a kernel (it may have been restarted). Nothing can be sent from here; run the cell again.";
const GONE = "This request was answered elsewhere, or is no longer waiting.";
/** How long an acknowledged answer may stay without a reply before it may be sent again. */
const REPLY_WITHIN = 30_000;

/** anywidget's `render`: draws one execution, and returns what frees it. */
function render({ model, el, signal }: { model: Model; el: HTMLElement; signal?: AbortSignal }): () => void {
  const post = courier(model);
  /** Whether anything was ever acknowledged, and whether the page has given up waiting for that. */
  let live = false;
  let lost = false;
  let current: Panel | null = null;
  /** The answer whose reply is awaited. */
  let asked: { id: string; round_id: string } | null = null;
  let replyTimer: ReturnType<typeof setTimeout> | undefined;
  const answered = new Set<string>();

  const head = header(() => deliver({ kind: "cancel_run" }));
  const done = h("div", {});
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
  const over = () => model.get("view")?.state === "finished";
  const focused = () => (root.getRootNode() as Document).activeElement;
  const say = (text: string) => {
    if (note.textContent !== text) note.textContent = text;
  };

  function deliver(message: Outgoing): string {
    return post.send(message, () => {
      // A run that has ended asks for nothing: it may well be a saved notebook that is only read.
      if (message.kind === "ready" && over()) return;
      lost = !live;
      say(live ? "The kernel does not answer. What was typed is still here: try again." : NOT_CONNECTED);
      if (message.kind === "submit") settle();
      else shut();
    });
  }

  function shut() {
    const id = current?.round.round_id;
    const closed = lost || asked?.round_id === id || answered.has(id!);
    // Focus must not fall out of the widget with the fields that close, or keys would reach the notebook.
    if (closed && current?.element.contains(focused())) note.focus();
    current?.close(closed);
    root.classList.toggle("off", lost);
    head.close(lost);
  }

  function settle() {
    clearTimeout(replyTimer);
    asked = null;
    shut();
  }

  function draw() {
    const view = model.get("view");
    if (!view) return;
    const before = current?.round.round_id;
    head.draw(view);
    // The same round is never drawn again: what a person is typing stays as it is.
    if (view.round?.round_id !== before) change(view, before);
    if (view.state === "finished" && before === undefined) say("");
    current?.done(view.done);
    shut();
  }

  function change(view: View, before: string | undefined) {
    const hadFocus = root.contains(focused());
    current = view.round && ask(view.round);
    place.replaceChildren(...(current ? [current.element] : []));
    if (before !== undefined && !answered.has(before) && asked?.round_id !== before)
      say(view.state === "finished" ? "The run has ended, so this request is closed." : GONE);
    else if (current || view.state === "finished") say("");
    shut();
    if (!hadFocus) return;
    if (current && !lost) current.focus();
    else note.focus();
  }

  function ask(round: Round): Panel {
    const { round_id } = round;
    const made: Panel = panel(round, (responses) => {
      if (asked || current !== made) return;
      say("Sending…");
      asked = { id: deliver({ kind: "submit", round_id, responses }), round_id };
      shut();
    });
    return made;
  }

  function hear(message: Incoming) {
    if (message.kind === "ack") return acknowledged(message.id);
    if (message.kind === "summary") return done.replaceChildren(...summary(message.rounds));
    if (message.kind === "accepted") {
      answered.add(message.round_id);
      if (asked?.round_id === message.round_id) settle();
      shut();
      if (!current || current.round.round_id === message.round_id) say("Answer stored. The run goes on.");
    } else if (message.id === asked?.id) {
      settle();
      say(message.message);
      if (current?.round.round_id !== message.round_id) return;
      if (message.kind === "invalid") current.invalid(message.errors);
      else current.tell(message.message);
    }
  }

  function acknowledged(id: string) {
    post.acknowledge(id);
    if (id === asked?.id) {
      clearTimeout(replyTimer);
      replyTimer = setTimeout(() => {
        settle();
        say("No reply yet. You can send it again: an answer counts once.");
      }, REPLY_WITHIN);
    }
    if (live) return;
    live = true;
    lost = false;
    if (!asked) say("");
    shut();
  }

  /** The line to the kernel was cut or mended, by a restart for one: ask whether anybody is there. */
  function probe() {
    live = false;
    deliver({ kind: "ready" });
  }

  model.on("change:view", draw);
  model.on("msg:custom", hear);
  model.on("comm_live_update", probe);
  const clock = setInterval(head.tick, 1000);
  el.append(root);
  draw();
  deliver({ kind: "ready" });
  const patience = setTimeout(() => live || over() || say("Connecting to the kernel…"), 1000);

  function free() {
    post.stop();
    clearInterval(clock);
    clearTimeout(replyTimer);
    clearTimeout(patience);
    forgetTheme();
    model.off("change:view", draw);
    model.off("msg:custom", hear);
    model.off("comm_live_update", probe);
    root.remove();
  }
  signal?.addEventListener("abort", free, { once: true });
  return free;
}

export default { render };
