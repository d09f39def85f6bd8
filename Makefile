# Forwards to ./run, which also works where make is not installed. Arguments: make test ARGS="-k claim"
.PHONY: setup test check bench prove demo docs clean help
setup test check bench prove demo docs clean help:
	@./run $@ $(ARGS)
