"""Send every order to another service, signed."""

import os

from penstock import App
from penstock.connect import Webhook

app = App(name="webhook")  # the log of $PENSTOCK_URL, else sqlite:///penstock.db
receiver = os.environ.get("RECEIVER_URL", "http://127.0.0.1:8098/orders")
secret = os.environ.get("WEBHOOK_SECRET", "only for this example")

app.publish("orders", group="to-receiver", publisher=Webhook(receiver, secret=secret))

if __name__ == "__main__":
    print(app.run(engine="local", until_drained=True).line())
