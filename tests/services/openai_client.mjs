// OpenAI's own client in several cases, one after the other: node openai_client.mjs URL, with a JSON of all cases as output.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const cases = {};
const follow = async (stream) => {
  const types = [];
  stream.on("event", (event) => types.push(event.type)); // it throws on an event that it does not know
  return { types, response: await stream.finalResponse() };
};

const first = await follow(client.responses.stream({ model: "Helper", input: "weather?" }));
const later = [];
for await (const event of await client.responses.retrieve(first.response.id, { stream: true, starting_after: 3 }))
  later.push(event.sequence_number);
cases.tool = { types: first.types, text: first.response.output_text, items: first.response.output.map((item) => item.type), later };

const locate = { type: "function", name: "locate", parameters: { type: "object", properties: {} }, strict: false };
const waiting = await client.responses.create({ model: "Talker", input: "where?", tools: [locate] });
const output = { type: "function_call_output", call_id: waiting.output[0].call_id, output: "Bonn" };
const second = client.responses.stream({ model: "Talker", previous_response_id: waiting.id, input: [output] });
cases.locate = { name: waiting.output[0].name, text: (await follow(second)).response.output_text };

const asking = await client.responses.create({ model: "Helper", input: "pay" });
const approval = { type: "mcp_approval_response", approval_request_id: asking.output[0].id, approve: false, reason: "no" };
const denied = await client.responses.create({ model: "Helper", previous_response_id: asking.id, input: [approval] });
cases.denied = { asked: asking.output[0].type, text: denied.output_text };

const running = await client.responses.create({ model: "Talker", input: "long", background: true });
cases.cancelled = (await client.responses.cancel(running.id)).status;
try {
  await client.responses.create({ model: "Talker", input: "hi", temperature: 0.5 });
} catch (error) {
  cases.refused = { status: error.status, message: error.message };
}
console.log(JSON.stringify(cases));
