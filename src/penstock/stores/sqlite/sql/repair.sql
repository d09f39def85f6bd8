-- name: repair.sequence
select :name, :value where false;
