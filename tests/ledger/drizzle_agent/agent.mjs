// An agent written with Drizzle ORM. Drizzle names every column of the table's declaration in an insert, with DEFAULT
// for what has no value, so its table declares only columns that an agent may set. Prints what became of each way to
// store an action, and what was sent for the plain one, as one JSON object.
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { jsonb, pgSchema, smallint, text, uuid } from "drizzle-orm/pg-core";
import pg from "pg";

const intent = {
  provider: text().notNull(),
  account: text().notNull().default("default"),
  operation: text().notNull(),
  idempotencyKey: text("idempotency_key").primaryKey(),
  payload: jsonb().notNull(),
};
const outbox = pgSchema("outbox");
/** The way that works. */
const actions = outbox.table("outbound_actions", {
  ...intent,
  orderingKey: text("ordering_key"),
  priority: smallint().notNull().default(1),
});
/** What `drizzle-kit pull` makes of the table: the id is a column with a default. */
const withId = outbox.table("outbound_actions", { actionId: uuid("action_id").defaultRandom(), ...intent });
const status = outbox.view("action_status", { idempotencyKey: text("idempotency_key"), advice: text() }).existing();
/** Asked for as SQL: a declared column would be named in the insert too. */
const actionId = sql`action_id`;

const BUYER = "a@example.com";
const PAYLOAD = { to: BUYER, text: "hello" };
const action = (idempotencyKey, changes = {}) => ({
  provider: "mail",
  operation: "send",
  idempotencyKey,
  payload: PAYLOAD,
  ...changes,
});
const FAILURE = Symbol("roll back");

const sent = [];
/** Which parts of an error had values of the insert in them. */
const told = [];
const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 1 });
const db = drizzle({ client: pool, logger: { logQuery: (query) => sent.push(query) } });

/** The rows of a query within a savepoint, or the SQLSTATE with which it was refused. */
async function tried(tx, query) {
  try {
    return await tx.transaction(async (inner) => {
      const done = await query(inner);
      return done.rows ?? done;
    });
  } catch (error) {
    told.push(...["message", "cause"].filter((part) => `${error[part]}${JSON.stringify(error[part])}`.includes(BUYER)));
    return error.cause?.code ?? error.message;
  }
}

async function storeInEveryWay(tx) {
  const outcome = {};
  const by = async (way, query) => (outcome[way] = await tried(tx, query));
  const insert = (inner, ...values) => inner.insert(actions).values(values);
  const enqueue = sql`select created from outbox.enqueue('mail', 'send', ${"k5"}, ${JSON.stringify(PAYLOAD)}::jsonb)`;
  await by("insert", (inner) => insert(inner, action("k1")));
  outcome.sent = sent.find((query) => query.startsWith("insert"));
  await by("again", (inner) => insert(inner, action("k1")).returning({ actionId }));
  await by("other_intent", (inner) => insert(inner, action("k1", { payload: { to: "b@example.com" } })));
  await by("many", (inner) => insert(inner, action("k2"), action("k3", { orderingKey: "a" })));
  await by("do_nothing", (inner) => insert(inner, action("k2"), action("k2")).onConflictDoNothing());
  await by("do_nothing_on_key", (inner) =>
    insert(inner, action("k2")).onConflictDoNothing({ target: actions.idempotencyKey }));
  await by("returning_key", (inner) => insert(inner, action("k4")).returning({ key: actions.idempotencyKey }));
  await by("returning_id", (inner) => insert(inner, action("k6")).returning({ actionId }));
  outcome.returning_id = outcome.returning_id.map((row) => Object.keys(row));
  await by("enqueue", (inner) => inner.execute(enqueue));
  await by("returning_all", (inner) => insert(inner, action("k7")).returning());
  await by("do_update", (inner) =>
    insert(inner, action("k7")).onConflictDoUpdate({ target: actions.idempotencyKey, set: { priority: 2 } }));
  await by("with_id", (inner) =>
    inner.insert(withId).values(action("k7")).returning({ actionId: withId.actionId }));
  await by("empty_label", (inner) => insert(inner, action("k7", { orderingKey: "" })));
  await by("read_table", (inner) => inner.select().from(actions));
  await by("read_status", (inner) => inner.select().from(status).where(sql`idempotency_key = 'k1'`));
  return { ...outcome, told: [...new Set(told)] };
}

/** Roll back after storing: nothing is left. */
async function placeAndFail() {
  await db
    .transaction(async (tx) => {
      await tx.insert(actions).values(action("rolled-back"));
      throw FAILURE;
    })
    .catch((error) => {
      if (error !== FAILURE) throw error;
    });
}

try {
  await placeAndFail();
  sent.length = 0;
  console.log(JSON.stringify(await db.transaction(storeInEveryWay)));
} finally {
  await pool.end();
}
