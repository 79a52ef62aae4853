-- name: insert_execution
INSERT INTO executions (execution_id, worker_id, managed, lifecycle, spec, labels, created_at)
VALUES (:execution_id, :worker_id, :managed, 'queued', :spec, :labels, :now)
ON CONFLICT DO NOTHING
RETURNING *

-- name: execution
SELECT * FROM executions WHERE execution_id = ?

-- name: executions
SELECT * FROM executions ORDER BY id

-- name: executions_of_worker
SELECT * FROM executions WHERE worker_id = ? ORDER BY id

-- name: unfinished
SELECT * FROM executions WHERE outcome IS NULL ORDER BY id

-- name: unfinished_of_worker
SELECT * FROM executions WHERE outcome IS NULL AND worker_id = ? ORDER BY id

-- name: orphans
SELECT * FROM executions WHERE outcome IS NULL AND worker_id NOT IN (SELECT worker_id FROM workers) ORDER BY id

-- name: claim_execution
UPDATE executions SET lifecycle = 'starting', started_at = :now
WHERE execution_id = :execution_id AND lifecycle = 'queued' AND worker_id = :worker_id
RETURNING id

-- name: set_lifecycle
UPDATE executions SET lifecycle = :lifecycle
WHERE execution_id = :execution_id AND outcome IS NULL AND lifecycle <> :lifecycle
RETURNING id

-- name: finish_execution
UPDATE executions SET lifecycle = 'finished', outcome = :outcome, result = :result, error = :error, finished_at = :now
WHERE execution_id = :execution_id AND outcome IS NULL
RETURNING id

-- name: request_cancel
UPDATE executions SET cancel_requested_at = :now
WHERE execution_id = :execution_id AND outcome IS NULL AND cancel_requested_at IS NULL
RETURNING id

-- name: next_sequence
UPDATE executions SET sequence = sequence + 1, tool_call_count = tool_call_count + (:kind = 'tool.call')
WHERE execution_id = :execution_id
RETURNING id, sequence

-- name: insert_event
INSERT INTO execution_events (execution, sequence, kind, payload, at) VALUES (?, ?, ?, ?, ?)

-- name: events
SELECT sequence, kind, payload, at FROM execution_events
WHERE execution = (SELECT id FROM executions WHERE execution_id = ?) AND sequence > ?
ORDER BY sequence LIMIT ?

-- name: register_worker
INSERT INTO workers (worker_id, kind, pid, version, prefix, port, token, lease_expires)
VALUES (:worker_id, :kind, :pid, :version, :prefix, :port, :token, :lease_expires)
ON CONFLICT (worker_id) DO UPDATE SET kind = excluded.kind, pid = excluded.pid, version = excluded.version,
  prefix = excluded.prefix, port = excluded.port, token = excluded.token, lease_expires = excluded.lease_expires
RETURNING *

-- name: renew_worker
UPDATE workers SET lease_expires = :lease_expires WHERE worker_id = :worker_id RETURNING worker_id

-- name: renew_rounds_of_worker
UPDATE rounds SET lease_expires_at = :lease_expires, updated_at = :now, stamp = random()
WHERE status NOT IN ('resolved', 'failed') AND lease_expires_at > :now
  AND execution_id IN (SELECT execution_id FROM executions WHERE outcome IS NULL AND worker_id = :worker_id)

-- name: remove_worker
DELETE FROM workers WHERE worker_id = ?

-- name: worker
SELECT * FROM workers WHERE worker_id = ?

-- name: workers
SELECT * FROM workers ORDER BY rowid

-- name: unresolved_rounds
SELECT * FROM rounds WHERE status NOT IN ('resolved', 'failed') ORDER BY created_at, id

-- name: expired_rounds
SELECT * FROM rounds WHERE status NOT IN ('resolved', 'failed') AND lease_expires_at <= ? ORDER BY created_at, id

-- name: purge_executions
UPDATE executions SET result = NULL, purged_at = :now
WHERE finished_at < :before AND purged_at IS NULL
RETURNING execution_id

-- name: purge_events
UPDATE execution_events SET payload = '{}'
WHERE payload <> '{}' AND execution = (SELECT id FROM executions WHERE execution_id = ?)

-- name: answers_of_execution
SELECT id, responses FROM rounds WHERE execution_id = ? AND responses IS NOT NULL

-- name: purge_answer
UPDATE rounds SET responses = :actions, redacted = :actions, stamp = random() WHERE id = :id

-- name: purge_questions
UPDATE rounds SET operation_parameters = '{}', request_state = NULL, purged_at = :now, stamp = random()
WHERE execution_id = :execution_id

-- name: purge_outbox
UPDATE outbox SET responses = NULL, acknowledged_at = coalesce(acknowledged_at, :now) WHERE execution_id = :execution_id
