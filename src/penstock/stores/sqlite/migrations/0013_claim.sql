-- What keys wait for. Dead letters have an index of their own: a group that goes on behind them never looks at them,
-- however many there are.
create index if not exists penstock_deliveries_turn on penstock_deliveries (group_id, bucket, ordering_key, "offset")
 where state <> 'PUBLISHED' and state <> 'DEAD';
create index if not exists penstock_deliveries_halted on penstock_deliveries (group_id, bucket, ordering_key, "offset")
 where state = 'DEAD' and reason is not 'skipped';
