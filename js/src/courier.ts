import { random } from "./dom";
import type { Model, Outgoing } from "./protocol";

const PAUSE = 250;
const TRIES = 40;
/** What a try counts that failed at once: the line to the kernel is cut, and more patience will not mend it. */
const CUT = 10;

export interface Courier {
  /** Sends now and every 250 ms, with one id, until Python acknowledges it. Returns the id. */
  send(message: Outgoing, lost: () => void): string;
  acknowledge(id: string): void;
  stop(): void;
}

/** JupyterLab loses messages while it starts a subshell, so each is sent again until its `ack` comes. */
export function courier(model: Model): Courier {
  const timers = new Map<string, ReturnType<typeof setInterval>>();
  const drop = (id: string) => {
    clearInterval(timers.get(id));
    timers.delete(id);
  };
  return {
    send(message, lost) {
      const id = random();
      const letter = { ...message, id };
      let tries = 0;
      const attempt = () => {
        try {
          model.send(letter);
          tries++;
        } catch {
          tries += CUT;
        }
      };
      attempt();
      timers.set(
        id,
        setInterval(() => {
          if (tries < TRIES) return attempt();
          drop(id);
          lost();
        }, PAUSE),
      );
      return id;
    },
    acknowledge: drop,
    stop: () => [...timers.keys()].forEach(drop),
  };
}
