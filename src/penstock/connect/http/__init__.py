"""The log over HTTP: `Client(url, token=…)` and `AsyncClient` have its methods and raise its errors."""

from penstock.connect.http.client import AsyncClient, Client
from penstock.connect.http.lease import AsyncLease, Lease

__all__ = ["AsyncClient", "AsyncLease", "Client", "Lease"]
