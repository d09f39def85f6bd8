"""Screen payments for fraud: a score for each, an alert for a card that is used too often in a short time."""

from penstock import App, Context, Event, Permanent, Retry

WINDOW_SECONDS = 600
SUSPICIOUS = 70

app = App(name="fraud")  # the log of $PENSTOCK_URL, else sqlite:///penstock.db


# In order by key: the payments of one card are seen one after the other, as they happened.
@app.subscribe("payments", group="fraud", types=["payment.*"], ordering="key", retry=Retry(max_attempts=3))
def screen(event: Event, ctx: Context) -> None:
    payment = event.json()
    try:
        number, cents, at = payment["id"], int(payment["cents"]), int(payment["at"])
    except (KeyError, TypeError, ValueError) as error:
        # Trying again would not make it better: it becomes a dead letter at once, and its neighbours go on.
        raise Permanent(f"malformed payment: {type(error).__name__}: {error}") from error

    recent = [moment for moment in ctx.state.get("recent", []) if moment > at - WINDOW_SECONDS]
    # The time to live is for cards that never come again: their state goes by itself.
    ctx.state.set("recent", [*recent, at], ttl_seconds=24 * 3600)
    score = min(100, 20 * len(recent) + cents // 10_000)

    # State, score and alert commit with the outcome of this event, or not at all: a crash repeats none of them.
    ctx.execute("insert into scores (payment_id, score) values (?, ?)", (number, score))
    if score >= SUSPICIOUS:
        alert = {"payment": number, "card": event.ordering_key, "score": score}
        ctx.emit("alerts", alert, type="alert.raised", ordering_key=event.ordering_key)


if __name__ == "__main__":
    print(app.run(until_drained=True).line())
