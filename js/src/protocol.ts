// What travels between Python and the page. m3nb/forms/plan.py and the notebook room define it.

/** What was typed into one field: exactly one of these. An absent field is omitted from the answer. */
export interface RawValue {
  text?: string;
  bool?: boolean;
  choice?: number;
  choices?: number[];
  json?: string;
  null?: true;
  fields?: Values;
  items?: RawValue[];
  /** Of a union, together with `fields` or `field`. */
  branch?: number;
  field?: RawValue;
  /** An item to which nothing was typed. */
  absent?: true;
}

export type Values = Record<string, RawValue>;

export interface Field {
  name: string;
  pointer: string;
  control: string;
  label: string;
  description: string | null;
  required: boolean;
  nullable: boolean;
  empty: boolean;
  initial: RawValue | null;
  options: { label: string; description: string | null }[];
  hint: string | null;
  attributes: Record<string, string>;
  readonly?: boolean;
  deprecated?: boolean;
  /** Of an "object". */
  fields?: Field[];
  /** Of a "list": the plan of one new item. Its pointers begin at the item. */
  item?: Field;
  min?: number;
  max?: number | null;
  /** Of a "union": with the fields of an object, or one field for any other value. */
  branches?: Branch[];
}

export interface Branch {
  label: string;
  description: string | null;
  fields: Field[] | null;
  field: Field | null;
}

export interface FormPlan {
  key: string;
  mode: "form";
  title: string | null;
  message: string;
  description: string | null;
  fields: Field[];
  hints: string[];
  blocked: string | null;
  /** Whether the fields depend on what is typed: Python is asked after each change. */
  live?: boolean;
}

export interface UrlPlan {
  key: string;
  mode: "url";
  message: string;
  url: { text: string; scheme: string; host: string; path: string };
  openable: boolean;
  warnings: string[];
  blocked: string | null;
}

export type Plan = FormPlan | UrlPlan;

export interface Round {
  round_id: string;
  index: number;
  limit: number | null;
  /** ISO 8601 with offset. */
  deadline: string | null;
  requests: Plan[];
  /** What the operation that waits was called with, as JSON text. */
  arguments?: string | null;
}

export interface View {
  state: "queued" | "starting" | "running" | "waiting" | "finished";
  status: string;
  outcome: string | null;
  error: string | null;
  server: string | null;
  operation: string | null;
  round: Round | null;
  /** Keys of the round's requests of which the server says that they are done. */
  done: string[];
  /** The round whose answer, come too late, the run can be made again with. */
  again: string | null;
  /** There is no run, so none that could be cancelled. */
  preview?: boolean;
  execution_id: string;
  /** Seconds since the round was asked, or else since the run began, when this view was made. */
  elapsed: number | null;
}

export type Action = "accept" | "decline" | "cancel";

export interface Response {
  action: Action;
  values?: Values;
}

export interface FieldError {
  request_key: string;
  pointer: string;
  keyword: string;
  message: string;
}

export interface Answered {
  round_id: string;
  action: string;
  items: { label: string; text: string }[];
  at: string | null;
}

/** A message that the page sends again until it is acknowledged. */
export type Outgoing =
  | { kind: "ready" }
  | { kind: "submit" | "again"; round_id: string; responses: Record<string, Response> }
  | { kind: "check"; round_id: string; key: string; values: Values }
  | { kind: "cancel_run" };

export type Incoming =
  | { kind: "ack"; id: string }
  | { kind: "invalid"; id: string; round_id: string; errors: FieldError[]; message: string }
  | { kind: "accepted"; id: string; round_id: string }
  | { kind: "again"; id: string; round_id: string }
  | { kind: "refused"; id: string; round_id: string; message: string }
  | { kind: "summary"; rounds: Answered[] }
  | Replan;

/** The fields of a live form as they are for the values that were sent with a `check`. */
export interface Replan {
  kind: "plan";
  id: string;
  round_id: string;
  key: string;
  fields: Field[];
  blocked: string | null;
}

/** The part of anywidget's model that is used here. */
export interface Model {
  get(name: "view"): View;
  on(event: string, callback: (...args: never[]) => void): void;
  off(event: string, callback: (...args: never[]) => void): void;
  send(content: unknown): void;
}
