-- What a streaming query says about single events of its claim, to be settled together with the claim.
alter table penstock.reader_claims add column if not exists failures jsonb;

-- Every right as before, and this one.
alter function penstock.rights() rename to rights_until_0017;
create function penstock.rights() returns table (kind text, rights text, things text)
language sql stable set search_path = pg_catalog, pg_temp as $$
  select r.kind, r.rights, r.things from penstock.rights_until_0017() r
  union all
  values ('worker', 'update (failures)', 'penstock.reader_claims')
$$;
select penstock.regrant();
