"""`python -m outbox_relay` runs the relay."""

from outbox_relay.dispatch.app import main

if __name__ == "__main__":
    main()
