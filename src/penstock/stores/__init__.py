"""Where the log lives: one contract (`base`), the verbs written once, and two databases that run them."""
