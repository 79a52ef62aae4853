-- Times are integer microseconds since 1970-01-01 UTC. JSON is text.

CREATE TABLE workers (
  worker_id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('embedded', 'detached')),
  pid INTEGER NOT NULL,
  version TEXT NOT NULL,
  prefix TEXT NOT NULL,
  port INTEGER,
  token TEXT,
  lease_expires INTEGER NOT NULL
) STRICT;

CREATE TABLE executions (
  id INTEGER PRIMARY KEY,
  execution_id TEXT NOT NULL UNIQUE,
  worker_id TEXT NOT NULL,
  managed INTEGER NOT NULL CHECK (managed IN (0, 1)),
  lifecycle TEXT NOT NULL,
  outcome TEXT,
  spec TEXT NOT NULL,
  labels TEXT NOT NULL,
  result TEXT,
  error TEXT,
  cancel_requested_at INTEGER,
  created_at INTEGER NOT NULL,
  started_at INTEGER,
  finished_at INTEGER,
  purged_at INTEGER,
  sequence INTEGER NOT NULL DEFAULT -1,
  tool_call_count INTEGER NOT NULL DEFAULT 0,
  CHECK ((lifecycle = 'finished') = (outcome IS NOT NULL))
) STRICT;

CREATE INDEX executions_unfinished ON executions (worker_id) WHERE outcome IS NULL;

CREATE TABLE execution_events (
  execution INTEGER NOT NULL REFERENCES executions (id),
  sequence INTEGER NOT NULL,
  kind TEXT NOT NULL,
  payload TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (execution, sequence)
) STRICT;

-- No reference to executions: the managed store also works alone.
-- stamp is a random number, another one after each change: who knows it knows the row.
CREATE TABLE rounds (
  id INTEGER PRIMARY KEY,
  stamp INTEGER NOT NULL,
  execution_id TEXT NOT NULL,
  round_id TEXT NOT NULL,
  round_index INTEGER NOT NULL,
  round_limit INTEGER NOT NULL CHECK (round_index BETWEEN 0 AND round_limit - 1),
  status TEXT NOT NULL
    CHECK (status IN ('pending', 'response_validated', 'delivery_started', 'delivered', 'resolved', 'failed')),
  owner_id TEXT NOT NULL,
  lease_token TEXT NOT NULL,
  lease_expires_at INTEGER NOT NULL,
  logical_operation_id TEXT NOT NULL,
  server TEXT NOT NULL,
  operation_kind TEXT NOT NULL,
  operation_name TEXT NOT NULL,
  asked_at INTEGER NOT NULL,
  deadline INTEGER,
  request_state TEXT,
  requests TEXT NOT NULL,
  operation_parameters TEXT NOT NULL,
  harness_session_id TEXT,
  native_resume_token TEXT,
  delivery_idempotency_key TEXT,
  session_id TEXT,
  turn_id TEXT,
  responses TEXT,
  redacted TEXT,
  response_digest TEXT,
  response_idempotency_key TEXT,
  delivery_attempts INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  response_validated_at INTEGER,
  delivery_started_at INTEGER,
  delivered_at INTEGER,
  resolved_at INTEGER,
  failed_at INTEGER,
  failure_code TEXT,
  failure_message TEXT,
  purged_at INTEGER,
  UNIQUE (execution_id, round_id),
  UNIQUE (execution_id, round_index),
  CHECK ((responses IS NULL) = (response_idempotency_key IS NULL)),
  CHECK ((responses IS NULL) = (redacted IS NULL)),
  CHECK (status NOT IN ('response_validated', 'delivery_started', 'delivered', 'resolved') OR responses IS NOT NULL),
  CHECK (status <> 'pending' OR responses IS NULL),
  CHECK ((status = 'failed') = (failure_code IS NOT NULL))
) STRICT;

CREATE INDEX rounds_unresolved ON rounds (execution_id) WHERE status NOT IN ('resolved', 'failed');

-- One row per transition, in the same transaction. A refused attempt has no to_status; its detail says why.
CREATE TABLE round_events (
  round INTEGER NOT NULL REFERENCES rounds (id),
  sequence INTEGER NOT NULL,
  method TEXT NOT NULL,
  from_status TEXT,
  to_status TEXT,
  at INTEGER NOT NULL,
  owner_id TEXT,
  detail TEXT,
  PRIMARY KEY (round, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE outbox (
  idempotency_key TEXT PRIMARY KEY,
  execution_id TEXT NOT NULL,
  round_id TEXT NOT NULL,
  digest TEXT NOT NULL,
  responses TEXT,
  created_at INTEGER NOT NULL,
  acknowledged_at INTEGER,
  UNIQUE (execution_id, round_id, digest)
) STRICT;
