-- Deletes claims of records that other programs have changed or deleted. Claims of live workers stay.
-- $1 workflow, $2 how many, $3 dead heartbeat (ms), $4 grace after the timeout (ms)
DELETE FROM smart_router.claims AS c USING (
  SELECT c.record_id, c.token FROM smart_router.claims AS c
  WHERE c.workflow = $1 AND (c.token IS NULL OR {is_lost}) AND NOT EXISTS (
    SELECT FROM {table} AS t
    WHERE {is_same} AND (
      t.{status} = {processing}
      -- Its count of resets or attempts, or its pause, is still needed.
      OR (c.token IS NULL AND t.{status} = {queued} AND (c.resets > 0 OR c.attempts > 0 OR c.not_before > now()))
    )
  )
  LIMIT $2
) AS idle
WHERE c.workflow = $1 AND c.record_id = idle.record_id AND c.token IS NOT DISTINCT FROM idle.token
