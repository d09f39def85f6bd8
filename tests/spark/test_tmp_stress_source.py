import time, pytest
from tests.spark.test_source_write import staged, _killed, appended, numbers, Staging, CrashPoint
def test_stress(postgres_log, postgres_log_url):
    lag = lost = 0
    end = time.monotonic() + 60
    n = 0
    while time.monotonic() < end:
        q = f"query:{n}"
        m = staged(postgres_log, 0, n, query=q)
        assert _killed(postgres_log_url, CrashPoint("before", 5), q, m)
        a = staged(postgres_log, 0, n, query=q)
        assert Staging(postgres_log.store, "out", q, 0).commit([a.staged]) is True
        seen = len(postgres_log.read("out", limit=100000))
        real = len(appended(postgres_log_url))
        lag += seen < n + 1; lost += real != n + 1
        n += 1
    print("rounds", n, "horizon lagged", lag, "lost", lost)
    assert lost == 0
