"""The HTTP service: a thin surface over the log. `penstock.http.app.service(log, auth)` makes it."""
