// Counts what the tools cost a model, with two public tokenizers. Of their counts, the larger one is noted.
import assert from 'node:assert/strict';
import { countTokens } from '@anthropic-ai/tokenizer';
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import { encode } from 'gpt-tokenizer';
import { Person } from './person.mjs';
import { Provider } from './provider.mjs';
import { callback, content, endpoint, fact, report, step } from './steps.mjs';

const tokens = (text) => Math.max(countTokens(text), encode(text).length);

const client = await step('an application that may do everything connects', async () => {
  const back = await callback();
  const authProvider = new Provider({ redirectUrl: back.url, name: 'Token counter' });
  const transport = () => new StreamableHTTPClientTransport(new URL(endpoint), { authProvider });
  const connected = new Client({ name: 'token-counter', version: '1.0.0' });
  const first = transport();
  await assert.rejects(connected.connect(first), (err) => err instanceof UnauthorizedError);
  const address = new URL(await new Person().decide(authProvider.asked[0].href, { allow: '*' }));
  await first.finishAuth(address.searchParams);
  back.close();
  const second = new Client({ name: 'token-counter', version: '1.0.0' });
  await second.connect(transport());
  return second;
});

await step('the tools are listed', async () => {
  const { tools } = await client.listTools();
  assert.equal(tools.length, 39);
  fact('list', tokens(JSON.stringify({ tools })));
  const forModels = tools.map(({ name, description, inputSchema }) => ({ name, description, inputSchema }));
  fact('list for models', tokens(JSON.stringify(forModels)));
});

// cost returns the tokens of calls: of their names and arguments, and of their results.
async function cost(...calls) {
  let sum = 0;
  for (const call of calls) {
    const result = await client.callTool(call);
    content(result);
    sum += tokens(JSON.stringify(call)) + tokens(result.content.map((c) => c.text).join(''));
  }
  return sum;
}

for (const list of ['appointments', 'contacts', 'conversations', 'estimates', 'invoices', 'jobs']) {
  await step(`25 ${list} are read`, async () => {
    fact(`25 ${list}`, await cost({ name: `${list}_search`, arguments: { limit: 25 } }));
  });
}

for (const name of ['Zoe', 'Octavia']) {
  await step(`the open invoices of ${name} are read`, async () => {
    fact(`open invoices of ${name}`, await cost(
      { name: 'contacts_search', arguments: { query: name } },
      { name: 'invoices_search', arguments: { query: name, status: ['sent', 'viewed', 'overdue'] } },
    ));
  });
}

await client.close();
report();
