-- name: series.group
-- What a group did, by buckets.
select (extract(epoch from at - %(since)s::timestamptz)::bigint / %(step)s::bigint)::int as bucket,
       sum(published)::bigint as published, sum(failed)::bigint as failed, sum(dead)::bigint as dead,
       sum(released)::bigint as released, max(lag) as lag, max(oldest_seconds) as oldest_seconds, max(pending) as pending,
       max(claimed) as claimed, max(retrying) as retrying, max(dead_letters) as dead_letters
  from penstock.metric
 where group_id = %(group_id)s and at >= %(since)s and at < %(until)s
 group by bucket;

-- name: series.stream
-- What was appended to a stream, by buckets.
select (extract(epoch from at - %(since)s::timestamptz)::bigint / %(step)s::bigint)::int as bucket, sum(appended)::bigint as appended
  from penstock.metric
 where stream = %(stream)s and at >= %(since)s and at < %(until)s
 group by bucket;

-- name: series.rounds
-- The buckets in which somebody sampled, and whether in their first minute; the one that follows included.
select bucket, bool_or(at_start and starts) as at_start from (
  select (extract(epoch from at - %(since)s::timestamptz)::bigint / %(step)s::bigint)::int as bucket, at_start,
         extract(epoch from at - %(since)s::timestamptz)::bigint %% %(step)s::bigint = 0 as starts
    from penstock.metric_round where at >= %(since)s and at <= %(until)s) sampled
 group by bucket;

-- name: series.published
-- What all groups finished, by buckets.
select group_id, bucket, sum(published)::bigint as published from (
  select group_id, (extract(epoch from at - %(since)s::timestamptz)::bigint / %(step)s::bigint)::int as bucket, published
    from penstock.metric
   where seconds in (60, 600, 3600) and at >= %(since)s and at < %(until)s and group_id is not null
  union all
  select group_id, (extract(epoch from at - %(since)s::timestamptz)::bigint / %(step)s::bigint)::int, published
    from penstock.metric_mark where at >= %(since)s and at < %(until)s) counted
 group by group_id, bucket;

-- name: series.behind
-- Groups of which not all leases are counted.
select group_id from penstock.metric_mark where behind;
