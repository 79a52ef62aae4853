// Local date and time controls ↔ RFC 3339 text with an offset.

const two = (n: number) => String(Math.abs(n) | 0).padStart(2, "0");

/** The browser's zone, by name. */
export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

function offset(at: Date): string {
  const minutes = -at.getTimezoneOffset();
  return (minutes < 0 ? "-" : "+") + two(minutes / 60) + ":" + two(minutes % 60);
}

/** "2026-01-02T03:04:05.678" by the clock of the browser's zone. */
const clock = (at: Date) => new Date(+at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, -1);
const today = () => clock(new Date()).slice(0, 10);

/** "2026-01-02T03:04" as typed → "2026-01-02T03:04:00+01:00"; a bare time gets today's offset. Null: no such time. */
export function withOffset(local: string): string | null {
  const full = local.includes("T") ? local : today() + "T" + local;
  const at = new Date(full);
  return isNaN(+at) ? null : local + (/:\d\d:/.test(local) ? "" : ":00") + offset(at);
}

/** RFC 3339 text → what a `datetime-local` or `time` control shows. Null: it cannot show it exactly. */
export function toLocal(text: string, timeOnly: boolean): string | null {
  const at = new Date(timeOnly ? today() + "T" + text : text);
  if (isNaN(+at) || /[:.]\d\d\.\d{4}/.test(text)) return null;
  return clock(at).slice(timeOnly ? 11 : 0).replace(/(:00)?\.000$/, "");
}

/** 3725 → "1 h 02 min"; 65 → "1 min 05 s". */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s >= 172800) return Math.floor(s / 86400) + " days";
  if (s >= 3600) return Math.floor(s / 3600) + " h " + two((s % 3600) / 60) + " min";
  return s >= 60 ? Math.floor(s / 60) + " min " + two(s % 60) + " s" : s + " s";
}
