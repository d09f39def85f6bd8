-- Streams whose names begin with `jobs:` hold jobs, and only jobs.

-- Whoever stores an event there stores a job: the stream is `jobs:<queue>:<priority>:<type>`, and its type is that type.
create trigger if not exists penstock_events_jobs before insert on penstock_events
when new.stream glob 'jobs:*' and not (
       new.stream glob 'jobs:[^:]*:[0-9]:*'
   and substr(new.stream, 6 + instr(substr(new.stream, 6), ':')) glob '[0-9]:*'
   and substr(new.stream, 8 + instr(substr(new.stream, 6), ':')) = new.event_type)
begin
  select raise(abort, 'penstock: reserved_stream: only jobs are in streams whose names begin with jobs:');
end;
