-- Failed records that wait for their retry.
-- $1 workflow
SELECT count(*)::int AS records FROM smart_router.claims AS c
WHERE c.workflow = $1 AND c.not_before > now() AND c.attempts > 0
