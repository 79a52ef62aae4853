-- name: round
SELECT * FROM rounds WHERE execution_id = ? AND round_id = ?

-- name: round_at_index
SELECT * FROM rounds WHERE execution_id = ? AND round_index = ?

-- name: rounds
SELECT * FROM rounds WHERE execution_id = ? ORDER BY round_index

-- name: redacted
SELECT redacted FROM rounds WHERE execution_id = ? AND round_id = ?

-- name: insert_round
INSERT INTO rounds (
  execution_id, round_id, round_index, round_limit, status, owner_id, lease_token, lease_expires_at,
  logical_operation_id, server, operation_kind, operation_name, asked_at, deadline, request_state, requests,
  operation_parameters, harness_session_id, native_resume_token, delivery_idempotency_key, session_id, turn_id,
  created_at, updated_at
) VALUES (
  :execution_id, :round_id, :round_index, :round_limit, 'pending', :owner_id, :lease_token, :lease_expires_at,
  :logical_operation_id, :server, :operation_kind, :operation_name, :asked_at, :deadline, :request_state, :requests,
  :operation_parameters, :harness_session_id, :native_resume_token, :delivery_idempotency_key, :session_id, :turn_id,
  :now, :now
)
ON CONFLICT DO NOTHING
RETURNING *

-- name: submit_responses
UPDATE rounds SET status = 'response_validated', response_validated_at = :now, updated_at = :now,
  responses = :responses, redacted = :redacted, response_digest = :response_digest,
  response_idempotency_key = :response_idempotency_key
WHERE execution_id = :execution_id AND round_id = :round_id AND status = 'pending'
  AND owner_id = :owner_id AND lease_token = :lease_token AND lease_expires_at > :now
RETURNING *

-- name: start_delivery
UPDATE rounds SET status = 'delivery_started', delivery_started_at = :now, updated_at = :now,
  delivery_attempts = delivery_attempts + 1
WHERE execution_id = :execution_id AND round_id = :round_id AND status = 'response_validated'
  AND owner_id = :owner_id AND lease_token = :lease_token AND lease_expires_at > :now
RETURNING *

-- name: mark_delivered
UPDATE rounds SET status = 'delivered', delivered_at = :now, updated_at = :now
WHERE execution_id = :execution_id AND round_id = :round_id AND status = 'delivery_started'
  AND owner_id = :owner_id AND lease_token = :lease_token AND lease_expires_at > :now
RETURNING *

-- name: resolve
UPDATE rounds SET status = 'resolved', resolved_at = :now, updated_at = :now
WHERE execution_id = :execution_id AND round_id = :round_id AND status = 'delivered'
  AND owner_id = :owner_id AND lease_token = :lease_token AND lease_expires_at > :now
RETURNING *

-- name: renew
UPDATE rounds SET lease_expires_at = :lease_expires_at, updated_at = :now
WHERE execution_id = :execution_id AND round_id = :round_id AND status NOT IN ('resolved', 'failed')
  AND owner_id = :owner_id AND lease_token = :lease_token AND lease_expires_at > :now
RETURNING *

-- name: fail
UPDATE rounds SET status = 'failed', failed_at = :now, updated_at = :now, failure_code = :code, failure_message = :message
WHERE id = :id
RETURNING *

-- name: claim
UPDATE rounds SET status = :status, owner_id = :owner_id, lease_token = :lease_token,
  lease_expires_at = :lease_expires_at, updated_at = :now,
  delivered_at = CASE WHEN :status = 'delivered' THEN coalesce(delivered_at, :now) END
WHERE id = :id
RETURNING *

-- name: insert_event
INSERT INTO round_events (round, sequence, method, from_status, to_status, at, owner_id, detail)
VALUES (?1, (SELECT coalesce(max(sequence) + 1, 0) FROM round_events WHERE round = ?1), ?2, ?3, ?4, ?5, ?6, ?7)
