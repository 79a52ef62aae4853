-- name: prepare
INSERT INTO outbox (idempotency_key, execution_id, round_id, digest, responses, created_at)
VALUES (:idempotency_key, :execution_id, :round_id, :digest, :responses, :now)
ON CONFLICT (execution_id, round_id, digest) DO UPDATE SET digest = excluded.digest
RETURNING *

-- name: acknowledge
UPDATE outbox SET responses = NULL, acknowledged_at = :now
WHERE idempotency_key = :idempotency_key AND acknowledged_at IS NULL

-- name: unacknowledged
SELECT * FROM outbox WHERE acknowledged_at IS NULL ORDER BY rowid

-- name: unacknowledged_of_execution
SELECT * FROM outbox WHERE acknowledged_at IS NULL AND execution_id = ? ORDER BY rowid
