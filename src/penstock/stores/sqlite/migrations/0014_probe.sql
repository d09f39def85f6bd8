-- The lease that tries the target of an open circuit: there is one at a time, and only its success closes the circuit.
alter table penstock_circuits add column probe integer;
