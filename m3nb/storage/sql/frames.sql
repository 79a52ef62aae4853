-- name: executions
SELECT
  executions.execution_id, executions.worker_id, executions.managed, executions.lifecycle, executions.outcome,
  executions.labels, executions.result, executions.error, executions.tool_call_count, executions.created_at,
  executions.started_at, executions.finished_at, executions.cancel_requested_at,
  (
    SELECT payload FROM execution_events
    WHERE execution = executions.id AND kind = 'prompt' ORDER BY sequence LIMIT 1
  ) AS prompt,
  coalesce(asked.n_rounds, 0) AS n_rounds,
  coalesce(asked.waited, 0) AS waited
FROM executions LEFT JOIN (
  SELECT
    execution_id, count(*) AS n_rounds,
    sum(coalesce(response_validated_at, failed_at) - created_at) AS waited
  FROM rounds GROUP BY execution_id
) AS asked USING (execution_id)
ORDER BY executions.id

-- name: rounds
SELECT
  execution_id, round_id, round_index, status, server, operation_kind, operation_name, requests, redacted,
  delivery_attempts, deadline, created_at, response_validated_at, delivered_at, resolved_at, failed_at,
  failure_code, failure_message,
  (SELECT count(*) FROM round_events WHERE round = rounds.id AND to_status IS NULL) AS refused_attempts
FROM rounds
ORDER BY created_at, id

-- name: requests
-- The events are looked through once, not once for each round.
WITH completions AS MATERIALIZED (
  SELECT
    executions.execution_id, json_extract(payload, '$.round_id') AS round_id,
    json_group_array(json_array(json_extract(payload, '$.request_key'), at)) AS completed
  FROM execution_events JOIN executions ON executions.id = execution_events.execution
  WHERE kind = 'elicitation.complete'
  GROUP BY 1, 2
)
SELECT
  execution_id, round_id, round_index, status, server, operation_kind, operation_name, requests, redacted,
  deadline, created_at, response_validated_at, failed_at, completed
FROM rounds LEFT JOIN completions USING (execution_id, round_id)
ORDER BY rounds.created_at, rounds.id

-- name: answers
SELECT
  execution_id, round_id, round_index, server, operation_kind, operation_name, requests, responses, redacted,
  created_at, response_validated_at
FROM rounds WHERE responses IS NOT NULL
ORDER BY created_at, id

-- name: events
SELECT
  at, 'execution' AS source, kind, payload, execution_events.sequence, execution_id,
  NULL AS from_status, NULL AS to_status, NULL AS owner_id, NULL AS round_id,
  NULL AS server, NULL AS operation_kind, NULL AS operation_name, execution AS history
FROM execution_events JOIN executions ON executions.id = execution_events.execution
UNION ALL
SELECT
  at, 'round', method, detail, round_events.sequence, execution_id,
  from_status, to_status, round_events.owner_id, round_id,
  server, operation_kind, operation_name, round
FROM round_events JOIN rounds ON rounds.id = round_events.round
ORDER BY 1, 2 DESC, history, 5
