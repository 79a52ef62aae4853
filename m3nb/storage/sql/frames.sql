-- name: rounds
SELECT
  rounds.execution_id, rounds.round_id, rounds.round_index, rounds.round_limit, rounds.status,
  rounds.server, rounds.operation_kind, rounds.operation_name, rounds.logical_operation_id, rounds.requests,
  rounds.redacted, rounds.delivery_attempts, rounds.asked_at, rounds.deadline, rounds.created_at, rounds.updated_at,
  rounds.response_validated_at, rounds.delivery_started_at, rounds.delivered_at, rounds.resolved_at, rounds.failed_at,
  rounds.failure_code, rounds.failure_message, rounds.purged_at,
  (SELECT count(*) FROM round_events WHERE round = rounds.id AND to_status IS NULL) AS refused_attempts,
  executions.labels, executions.outcome
FROM rounds LEFT JOIN executions USING (execution_id)
ORDER BY rounds.created_at, rounds.id

-- name: answers
SELECT
  execution_id, round_id, round_index, server, operation_kind, operation_name, requests, responses, redacted,
  created_at, response_validated_at, status, purged_at
FROM rounds WHERE responses IS NOT NULL
ORDER BY created_at, id

-- name: round_events
SELECT
  rounds.execution_id, rounds.round_id, round_events.sequence, round_events.method, round_events.from_status,
  round_events.to_status, round_events.at, round_events.owner_id, round_events.detail
FROM round_events JOIN rounds ON rounds.id = round_events.round
ORDER BY round_events.at, rounds.id, round_events.sequence
