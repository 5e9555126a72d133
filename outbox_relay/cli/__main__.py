"""`python -m outbox_relay.cli` is the same as `outbox`."""

from outbox_relay.cli import main

main()
