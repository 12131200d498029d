// Asks the server at $SYSTEM1_URL all that the SDK can and prints what it got as one JSON line.
import { APIError, TypeSafeClient, choice, noul, score } from "@typesafe-ai/sdk";

const client = new TypeSafeClient({
  baseURL: process.env.SYSTEM1_URL,
  apiKey: process.env.SYSTEM1_KEY ?? "any",
  retry: { maxRetries: 0 },
  timeout: 60_000,
});

const state = { message: process.env.SYSTEM1_STATE };
const questions = {
  topic: choice("What is the message about?", { billing: "charges", shipping: null }),
  urgency: score("How urgent is it?", ["can wait", { by: "today" }, ["now"]]),
  refund: noul("Does the customer want a refund?", { true: "they ask for money back" }),
};

async function failure(promise) {
  try {
    await promise;
    return null;
  } catch (error) {
    if (!(error instanceof APIError)) throw error;
    const { status, requestId, message } = error;
    return { kind: error.constructor.name, status, requestId, message };
  }
}

const { data, requestId } = await client.systemOne({ state, questions }).withResponse();
const many = await Promise.all(
  Array.from({ length: 50 }, (_, number) =>
    client.systemOne({ state: `Order ${number} was charged twice.`, questions }),
  ),
);
const found = {
  data,
  requestId,
  models: (await client.models.list()).map((model) => model.name),
  many: many.map((result) => result.answers),
  again: (await client.systemOne({ state: "Order 7 was charged twice.", questions })).answers,
  unknownModel: await failure(client.systemOne({ state, questions, model: "no-such-model" })),
  nullState: await failure(client.systemOne({ state: null, questions })),
  nullLevel: await failure(
    client.systemOne({ state, questions: { bad: score("How much?", ["little", null]) } }),
  ),
};
console.log(JSON.stringify(found));
