"""outbox-relay: actions on the outside world, recorded in PostgreSQL, sent once, and never guessed about."""
