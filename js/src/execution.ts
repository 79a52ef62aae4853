import { courier } from "./courier";
import { active, h } from "./dom";
import type { Incoming, Model, Outgoing, Round, Values, View } from "./protocol";
import { type Panel, panel } from "./round";
import { header } from "./status";
import { summary } from "./summary";
import { followTheme } from "./theme";

const NOT_CONNECTED =
  "Not connected to a kernel (it may have been restarted). Nothing can be sent from here; run the cell again.";
const GONE = "This request was answered elsewhere, or is no longer waiting.";
const ENDED = "The run has ended, so this request is closed.";
/** How long an acknowledged answer may stay without a reply before it may be sent again. */
const REPLY_WITHIN = 30_000;
/** How long after the last change of a live form Python is asked. */
const CHECK_AFTER = 250;
/** How long the height of an answered round is kept for the next one, in milliseconds. */
const HOLD = 4000;

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
  let execution = "";
  /** Live forms that changed, and the ids of the checks whose replies count. */
  const changed = new Map<string, () => Values>();
  const checks = new Map<string, string>();
  let checkTimer: ReturnType<typeof setTimeout> | undefined;
  let holdTimer: ReturnType<typeof setTimeout> | undefined;

  const head = header(() => deliver({ kind: "cancel_run" }));
  const done = h("div");
  const place = h("div");
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
  const focused = () => active(root);
  const rest = () => note.focus({ preventScroll: true });
  const say = (text: string) => {
    if (note.textContent !== text) note.textContent = text;
  };

  function deliver(message: Outgoing): string {
    return post.send(message, () => {
      // A run that has ended asks for nothing: it may well be a saved notebook that is only read.
      if (message.kind === "ready" && over()) return;
      lost = !live;
      say(live ? "The kernel does not answer. What was typed is still here: try again." : NOT_CONNECTED);
      if ("responses" in message) settle();
      else shut();
    });
  }

  function shut() {
    const id = current?.round.round_id;
    const view = model.get("view");
    const open = view?.round?.round_id === id || view?.again === id;
    const closed = lost || !open || asked?.round_id === id || answered.has(id!);
    // Focus must not fall out of the widget with the fields that close, or keys would reach the notebook.
    if (closed && current?.element.contains(focused())) rest();
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
    // Another run took its place. (An id that only becomes known is that of the same round.)
    if (execution !== view.execution_id && view.round?.round_id !== before) {
      done.replaceChildren();
      if (before) answered.add(before);
    }
    execution = view.execution_id;
    // The same round is never drawn again: what a person is typing stays as it is.
    if (view.round?.round_id !== before) change(view, before);
    if (view.state === "finished" && before === undefined) say("");
    if (over()) hold(0);
    current?.done(view.done);
    shut();
  }

  function change(view: View, before: string | undefined) {
    const hadFocus = root.contains(focused());
    clearTimeout(checkTimer);
    changed.clear();
    checks.clear();
    const why = over() ? ENDED : GONE;
    const missed = before !== undefined && !answered.has(before);
    // What was typed does not go with the round that asked for it.
    if (missed && !view.round && (asked || current!.touched())) {
      if (!asked) say(why + " What was typed is still here.");
      if (view.again === before) current!.late(dismiss);
      return shut();
    }
    current = view.round && ask(view.round);
    // The page must not jump up and down again between two rounds.
    hold(current ? 0 : place.offsetHeight);
    place.replaceChildren(...(current ? [current.element] : []));
    if (missed && asked?.round_id !== before) say(why);
    else if (current || view.state === "finished") say("");
    shut();
    if (!hadFocus) return;
    if (current && !lost) current.focus();
    else rest();
  }

  /** Takes the form away whose round is gone. */
  function dismiss() {
    answered.add(current!.round.round_id);
    draw();
    rest();
  }

  function hold(height: number) {
    clearTimeout(holdTimer);
    place.style.minHeight = height ? height + "px" : "";
    if (height) holdTimer = setTimeout(hold, HOLD, 0);
  }

  function ask(round: Round): Panel {
    const { round_id } = round;
    const made: Panel = panel(
      round,
      (responses) => {
        if (asked || current !== made) return;
        check(round_id);
        say("Sending…");
        const kind = model.get("view").round ? "submit" : "again";
        asked = { id: deliver({ kind, round_id, responses }), round_id };
        shut();
      },
      (key, read) => {
        changed.set(key, read);
        clearTimeout(checkTimer);
        checkTimer = setTimeout(check, CHECK_AFTER, round_id);
      },
    );
    return made;
  }

  /** Asks for the fields of the live forms that changed; only the reply to the last question counts. */
  function check(round_id: string) {
    clearTimeout(checkTimer);
    for (const [key, read] of changed) {
      post.acknowledge(checks.get(key) ?? "");
      checks.set(key, deliver({ kind: "check", round_id, key, values: read() }));
    }
    changed.clear();
  }

  function hear(message: Incoming) {
    if (message.kind === "ack") return acknowledged(message.id);
    if (message.kind === "summary") return done.replaceChildren(...summary(message.rounds));
    if (message.kind === "plan") {
      if (checks.get(message.key) === message.id) current?.replan(message);
    } else if (message.kind === "accepted") {
      answered.add(message.round_id);
      if (asked?.round_id === message.round_id) settle();
      draw();
      if (!current || current.round.round_id === message.round_id) say("Answer stored. The run goes on.");
    } else if (message.id === asked?.id) {
      settle();
      if (message.kind === "again") {
        dismiss();
        return say("Started again with this answer.");
      }
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
    clearTimeout(checkTimer);
    clearTimeout(holdTimer);
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
