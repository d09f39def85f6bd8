"""Ask a moody service about every parcel, many at once, and store each answer once."""

import os

import httpx

from penstock import App, Context, Event, Permanent, Retry, RetryLater, Unavailable

app = App(name="enrichment")  # the log of $PENSTOCK_URL, else sqlite:///penstock.db
# One client for all events: the handlers of a group share one event loop in one process.
geocoder = httpx.AsyncClient(base_url=os.environ.get("GEOCODER_URL", "http://127.0.0.1:8099"), timeout=10)


# keyed=False: no state is kept by key, so any worker may take any parcel.
@app.subscribe("parcels", group="geocode", concurrency=32, keyed=False, retry=Retry(max_attempts=5, base_seconds=0.2))
async def geocode(event: Event, ctx: Context) -> None:
    parcel = event.json()
    # The service bills every request, but one: a request whose key it knows. The key stays the same in all attempts.
    headers = {"Idempotency-Key": ctx.idempotency_key}
    try:
        answer = await geocoder.post("/geocode", json={"address": parcel["address"]}, headers=headers)
    except httpx.ConnectError as error:
        raise Unavailable("the geocoder does not answer") from error

    match answer.status_code:
        case 503:  # it is down, and no parcel is to blame: nobody fails, one is tried now and then until it is back
            raise Unavailable("the geocoder is down")
        case 429:  # it says itself when to come back
            raise RetryLater(float(answer.headers["Retry-After"]), "too many requests")
        case 404:  # it will never know
            raise Permanent(f"unknown address: {parcel['address']}")
    answer.raise_for_status()  # anything else is a failure like any other: again after the backoff

    place = answer.json()
    ctx.execute("insert into places (parcel, lat, lon) values (?, ?, ?)", (parcel["id"], place["lat"], place["lon"]))


if __name__ == "__main__":
    print(app.run(until_drained=True).line())
