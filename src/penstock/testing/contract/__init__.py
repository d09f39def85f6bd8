"""The contract kit of publishers: what every publisher must do, and a check that tells whether one does."""
