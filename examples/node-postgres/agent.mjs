// An agent that confirms orders by email, with node-postgres and SQL alone.
//
// Run it twice with the same order: the second run finds what the first one did, and sends nothing.
//
//     DATABASE_URL=postgresql://outbox_agent@localhost/app node agent.mjs order-1
import pg from "pg";

const SERIALIZATION_FAILURE = "40001";
const INTENT_CONFLICT = "OB001";
const ENQUEUE = "select action_id from outbox.enqueue('resend', 'emails.send', $1, $2::jsonb)";
const INSERT = `
  insert into outbox.outbound_actions (provider, operation, idempotency_key, payload)
  values ('resend', 'emails.send', $1, $2::jsonb) returning action_id`;
const STATUS = `
  select advice, execution_state, delivery_state, check_again_at
    from outbox.action_status where idempotency_key = $1`;
const NEW_ORDER = "insert into shop.orders values ($1, 'buyer@example.com', 'placed')";

const say = (step, fields) => console.log(JSON.stringify({ step, ...fields }));

// The key names what must happen once: tenant, object, id, verb, occurrence. Never a random part.
const key = (order, verb) => `shop:order:${order}:${verb}:1`;

// As JSON text: node-postgres would turn an array into a PostgreSQL array, and numbers beyond 2^53 are lost in JavaScript
// unless they are written into the text by hand.
const email = (order, subject) =>
  JSON.stringify({ from: "shop@example.com", to: ["buyer@example.com"], subject, text: order });

/** Run `work` in a transaction; begin again when another transaction was faster (40001). */
async function inTransaction(pool, work, { isolation = "read committed", attempts = 5 } = {}) {
  for (let attempt = 1; ; attempt += 1) {
    const client = await pool.connect();
    try {
      await client.query(`begin isolation level ${isolation}`);
      const value = await work(client);
      await client.query("commit");
      return { value, attempts: attempt };
    } catch (error) {
      await client.query("rollback");
      if (error.code !== SERIALIZATION_FAILURE || attempt === attempts) throw error;
    } finally {
      client.release();
    }
  }
}

/** Store the order and ask for its confirmation, together. Returns the action, new or existing. */
async function place(pool, order) {
  const { value } = await inTransaction(pool, async (client) => {
    await client.query(`${NEW_ORDER} on conflict do nothing`, [order]);
    return client.query(ENQUEUE, [key(order, "confirm"), email(order, "Thank you")]);
  });
  return value.rows[0].action_id;
}

/** Roll back after asking: nothing is left, so nothing will be sent. */
async function placeAndFail(pool, order) {
  const failure = new Error("the order could not be stored");
  await inTransaction(pool, async (client) => {
    await client.query(NEW_ORDER, [order]);
    await client.query(INSERT, [key(order, "confirm"), email(order, "Thank you")]);
    throw failure;
  }).catch((error) => {
    if (error !== failure) throw error;
  });
  return (await pool.query(STATUS, [key(order, "confirm")])).rows.length;
}

/** Use a known key with another intent: refused, and with a savepoint the transaction goes on. */
async function changeMind(pool, order) {
  const { value } = await inTransaction(pool, async (client) => {
    await client.query("update shop.orders set status = 'confirming' where order_id = $1", [order]);
    await client.query("savepoint before_action");
    try {
      await client.query(INSERT, [key(order, "confirm"), email(order, "Thank you SO much")]);
    } catch (error) {
      if (error.code !== INTENT_CONFLICT) throw error;
      await client.query("rollback to savepoint before_action");
      await client.query("update shop.orders set status = 'already asked' where order_id = $1", [order]);
      return { sqlstate: error.code, detail: error.detail ?? null };
    }
    return { sqlstate: null, detail: null };
  });
  return value;
}

/** Lose a race on purpose: a twin commits the same action after our snapshot was taken. */
async function race(pool, order) {
  const wanted = [key(order, "invoice"), email(order, "Your invoice")];
  const { value, attempts } = await inTransaction(
    pool,
    async (client) => {
      await client.query("select status from shop.orders where order_id = $1", [order]);
      await pool.query(ENQUEUE, wanted);
      return client.query(ENQUEUE, wanted);
    },
    { isolation: "repeatable read" },
  );
  return { action_id: value.rows[0].action_id, attempts };
}

async function main(order) {
  const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 2 });
  try {
    say("committed", { action_id: await place(pool, order) });
    say("rolled_back", { actions: await placeAndFail(pool, `${order}-failed`) });
    say("repeated", { action_id: await place(pool, order) });
    const again = await pool.query(INSERT, [key(order, "confirm"), email(order, "Thank you")]);
    say("inserted_again", { rows: again.rows.length }); // no error and no second row: RETURNING yields nothing
    say("refused", await changeMind(pool, order));
    say("raced", await race(pool, order));
    say("status", (await pool.query(STATUS, [key(order, "confirm")])).rows[0]);
  } finally {
    await pool.end();
  }
}

await main(process.argv[2] ?? "order-1");
