// The second generation of the official TypeScript SDK, with its own OAuth client. MCP_ERA says which revisions of the
// protocol it speaks: 'legacy' (2025-11-25), 'auto', or a revision that it insists on.
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import { journey } from './journey.mjs';
import { endpoint, report } from './steps.mjs';

const era = process.env.MCP_ERA ?? 'auto';
const mode = era === 'legacy' || era === 'auto' ? era : { pin: era };

await journey({
  name: `Second SDK, ${era}`,
  metadata: process.env.CLIENT_METADATA_URL,
  transport: (authProvider, fetch) => new StreamableHTTPClientTransport(new URL(endpoint), { authProvider, fetch }),
  connect: async (transport) => {
    const client = new Client({ name: 'second-sdk', version: '1.0.0' }, { versionNegotiation: { mode } });
    await client.connect(transport);
    return client;
  },
  finish: (transport, address) => transport.finishAuth(address.searchParams),
  unauthorized: (err) => err instanceof UnauthorizedError,
  stepUp: 'by itself',
});
report();
