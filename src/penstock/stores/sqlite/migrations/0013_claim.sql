-- One writer at a time: nobody has to take turns here.
select 1;
