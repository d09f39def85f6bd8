# %% [markdown]
# # Penstock in ten cells
# From an event to a dead letter and back, and a look at all of it with Spark.
# Open this file as a notebook (VS Code, Jupyter with jupytext), or run it: `python walkthrough.py`.

# %% A log is a file here; postgresql://… works the same way.
import os
import tempfile

from pyspark.sql import SparkSession

import penstock
from penstock import App, Context, Event, Permanent, Retry

# Handlers run in other processes. Those of a notebook travel there as code; if there were a file, it would be imported.
globals().pop("__file__", None)

url = os.environ.get("PENSTOCK_URL", f"sqlite:///{tempfile.mkdtemp()}/walkthrough.db")
log = penstock.open(url)
small = {"spark.sql.shuffle.partitions": "2"}  # not Spark's 200: five events are no big data
spark = SparkSession.builder.appName("walkthrough").config(map=small).getOrCreate()

# %% Append a few events. What is in the log never changes.
amounts = [1250, 400, -5, 990, 70]
for number, cents in enumerate(amounts, start=1):
    log.append("orders", {"id": number, "cents": cents}, type="order.created", ordering_key=f"c-{number % 2}")
print([(event.offset, event.json()) for event in log.read("orders")])

# %% A handler, and the group it works for. Its effects commit with its outcome: exactly once.
app = App(url, name="walkthrough")


@app.subscribe("orders", group="totals", retry=Retry(max_attempts=2, base_seconds=0.1))
def total(event: Event, ctx: Context) -> None:
    cents = event.json()["cents"]
    if cents < 0:
        raise Permanent(f"a negative amount: {cents}")
    ctx.state["cents"] = ctx.state.get("cents", 0) + cents


# %% Run it on Spark until nothing is left. One bad event stops nobody.
print(app.run(spark=spark, until_drained=True).line())

# %% Every customer has a total, and one event is a dead letter, with the reason.
print({key: log.state("orders", "totals", key) for key in ("c-0", "c-1")})
for dead in log.deliveries("orders", "totals", state="DEAD"):
    print(dead.offset, dead.json(), dead.last_error)

# %% Another group sees everything from the beginning; what became of an event elsewhere is not its business.
log.create_group("orders", "audit")
lease = log.claim("orders", "audit", limit=100, claimed_by="me")
assert lease is not None  # None means that nothing is due
print([event.json()["id"] for event in lease.events])
lease.settle()

# %% It was a refund, and refunds are fine: a better handler for the same group.
fixed = App(url, name="walkthrough")


@fixed.subscribe("orders", group="totals", retry=Retry(max_attempts=2, base_seconds=0.1))
def total_with_refunds(event: Event, ctx: Context) -> None:
    ctx.state["cents"] = ctx.state.get("cents", 0) + event.json()["cents"]


# %% Redrive what died of it, and run again.
print(log.redrive("orders", "totals", error="Permanent", by="walkthrough").count, "redriven")
print(fixed.run(spark=spark, until_drained=True).line())

# %% The log as a DataFrame: events, and one row per event and group.
source = spark.read.format("penstock").option("url", url).option("stream", "orders")
source.load().selectExpr("offset", "ordering_key", "cast(payload as string) payload").orderBy("offset").show()
deliveries = source.option("what", "deliveries").load()
deliveries.groupBy("group_name", "state").count().orderBy("group_name").show()

# %%
log.close()
