"""Speed, cost and growth of outbox-relay, measured beside the limits and the peers. Not part of the product."""
