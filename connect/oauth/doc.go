// Package oauth is an OAuth 2.1 authorization server that connects AI assistants to a business's account. It supports the
// authorization code grant with PKCE (S256) for public clients, refresh token rotation, revocation, metadata discovery and
// client registration.
//
//	/.well-known/oauth-protected-resource[/mcp]   RFC 9728; CORS
//	/.well-known/oauth-authorization-server       RFC 8414, and openid-configuration with the same content; CORS
//	/oauth/authorize                              OAuth 2.1 draft, RFC 7636, 8707, 9207
//	/oauth/token                                  the same; CORS
//	/oauth/revoke                                 RFC 7009; CORS
//	/oauth/register                               RFC 7591; CORS
//
// A valid request at /oauth/authorize is stored under an unguessable ID until a user decides on the approval page, which
// calls [Server.Pending] and [Server.Approve] or [Server.Deny]. An approved request becomes a [Grant], which users know as a
// connection. [Server.Protect] accepts its access tokens, [Server.Grants] lists it, [Server.Change] sets its scopes and
// [Server.Revoke] ends it. It also ends if the account that approved it is closed, leaves the business or is no longer an owner.
//
// # Clients and redirect URIs
//
// A client ID is either the https URL of a metadata document (OAuth Client ID Metadata Document draft), which is cached as its HTTP
// headers say, for 1 minute to 1 hour, or was issued by /oauth/register. All clients are public; none gets a secret.
//
// A redirect URI must equal one of the client's byte for byte, except for the port of http on localhost, 127.0.0.1 and [::1]
// (RFC 8252, section 7.3). Anyone can register a client, so errors before the user's decision are redirected to loopback addresses
// only: others would make the gateway an open redirector (RFC 9700, section 4.11.2).
//
// # Refresh tokens
//
// docs/connect.md lists all lifetimes, redirect URIs and what is fetched. Each repetition of a used refresh token returns the same tokens
// as its first use, so concurrent uses all get the same successor. If a refresh token is used later than allowed, or after its successor
// was used, the connection ends. A repetition does not restore a revoked access token (RFC 7009).
//
// # Storage
//
// All data is in Redis (7 or newer). Every key has a TTL:
//
//	<prefix>{<id>}:request    an authorization request, 10 min
//	<prefix>{<id>}            a connection with all its tokens, until the last of them expires
//	<prefix>{<id>}:attempts   the IDs of the last attempts that changed it, 2 min after the last one
//	<prefix>business:<id>     the IDs of a business's connections; readers remove those that have ended
//	<prefix>client:<id>       a registration
//	<prefix>document:<hash>   a client's metadata document
//	rate:<prefix>…            redis_rate's counters
//
// Keys that change together share a hash tag, and so a Cluster slot: the ID is part of every token and code. Tokens and codes
// are stored as SHA-256 hashes only. Every change of a connection is one Lua script. It is sent again if its reply is lost; the
// attempt ID makes the second run return the first one's result.
//
// Approving, denying, starting, changing and ending a connection each have an audit log entry. It is stored before the script runs
// and resolved with its result, or as unknown if no reply came.
//
// If Redis is unavailable or a script returns an unexpected reply, the response is 503 with Retry-After, never invalid_grant or
// invalid_token, at which clients discard their tokens.
package oauth
