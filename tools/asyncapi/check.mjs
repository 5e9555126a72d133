// Parse an AsyncAPI document with the reference parser and print, as one JSON object, every complaint and what the
// document says about channels, so that a test can compare it with the product. Never fetches anything from a network.
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, file] = process.argv.slice(2);
const require = createRequire(join(modules, "package.json"));
const { Parser, fromFile } = require("@asyncapi/parser");

const { document, diagnostics } = await fromFile(new Parser(), file).parse();
const complaints = diagnostics.map((found) => ({
  code: found.code,
  severity: found.severity,
  message: found.message,
  path: found.path.join("."),
}));
const channels = (document?.channels().all() ?? []).map((channel) => ({
  address: channel.address(),
  kafka: channel.bindings().get("kafka")?.value() ?? null,
  messages: channel.messages().all().map((message) => ({
    name: message.name(),
    key: message.bindings().get("kafka")?.value().key ?? null,
    headers: Object.keys(message.headers()?.json().properties ?? {}),
    payload: message.payload()?.json() ?? null,
  })),
}));
console.log(JSON.stringify({ valid: document !== undefined, complaints, channels }));
