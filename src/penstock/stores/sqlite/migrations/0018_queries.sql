-- What a streaming query says about single events of its claim, to be settled together with the claim.
alter table penstock_reader_claims add column failures text;
