-- name: round
SELECT * FROM rounds WHERE execution_id = ? AND round_id = ?

-- name: round_at_index
SELECT * FROM rounds WHERE execution_id = ? AND round_index = ?

-- name: rounds
SELECT * FROM rounds WHERE execution_id = ? ORDER BY round_index

-- name: open_rounds
SELECT * FROM rounds
WHERE execution_id = ? AND status NOT IN ('resolved', 'failed') ORDER BY round_index

-- name: redacted
SELECT redacted FROM rounds WHERE execution_id = ? AND round_id = ?

-- name: insert_round
INSERT INTO rounds (
  stamp, execution_id, round_id, round_index, round_limit, status, owner_id, lease_token, lease_expires_at,
  logical_operation_id, server, operation_kind, operation_name, asked_at, deadline, request_state, requests,
  operation_parameters, harness_session_id, native_resume_token, delivery_idempotency_key, session_id, turn_id,
  created_at, updated_at
) VALUES (
  :stamp, :execution_id, :round_id, :round_index, :round_limit, 'pending', :owner_id, :lease_token, :lease_expires_at,
  :logical_operation_id, :server, :operation_kind, :operation_name, :asked_at, :deadline, :request_state, :requests,
  :operation_parameters, :harness_session_id, :native_resume_token, :delivery_idempotency_key, :session_id, :turn_id,
  :created_at, :created_at
)
ON CONFLICT DO NOTHING

-- Changes: each takes the new stamp and the time first, the row's id and the stamp it was seen with last.

-- name: submit_responses
UPDATE rounds SET stamp = ?1, updated_at = ?2, response_validated_at = ?2, status = 'response_validated',
  responses = ?3, response_idempotency_key = ?4, response_digest = ?5, redacted = ?6
WHERE id = ?7 AND stamp = ?8

-- name: start_delivery
UPDATE rounds SET stamp = ?1, updated_at = ?2, delivery_started_at = ?2, status = 'delivery_started',
  delivery_attempts = delivery_attempts + 1
WHERE id = ?3 AND stamp = ?4

-- name: mark_delivered
UPDATE rounds SET stamp = ?1, updated_at = ?2, delivered_at = ?2, status = 'delivered' WHERE id = ?3 AND stamp = ?4

-- name: resolve
UPDATE rounds SET stamp = ?1, updated_at = ?2, resolved_at = ?2, status = 'resolved' WHERE id = ?3 AND stamp = ?4

-- name: renew
UPDATE rounds SET stamp = ?1, updated_at = ?2, lease_expires_at = ?3 WHERE id = ?4 AND stamp = ?5

-- name: fail
UPDATE rounds SET stamp = ?1, updated_at = ?2, failed_at = ?2, status = 'failed', failure_code = ?3, failure_message = ?4
WHERE id = ?5 AND stamp = ?6

-- name: claim_round
UPDATE rounds SET stamp = ?1, updated_at = ?2, status = ?3, owner_id = ?4, lease_token = ?5, lease_expires_at = ?6,
  delivered_at = CASE WHEN ?3 = 'delivered' THEN coalesce(delivered_at, ?2) END
WHERE id = ?7 AND stamp = ?8

-- name: insert_event
INSERT INTO round_events (round, sequence, method, from_status, to_status, at, owner_id, detail)
VALUES (?1, (SELECT coalesce(max(sequence) + 1, 0) FROM round_events WHERE round = ?1), ?2, ?3, ?4, ?5, ?6, ?7)
