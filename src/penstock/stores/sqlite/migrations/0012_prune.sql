-- Prune needs functions of the owner in PostgreSQL only.
select 1;
