// Package demo is a small data service as a platform team would run it behind
// the gateway: the business data of the public API over HTTP, kept in SQLite.
//
// It serves the public API, and what the connection server asks for the
// assistants of a business (docs/data-services.md says all of it).
//
// The first is GET and HEAD of /api/v1/{business,contacts,equipment,estimates,
// invoices,jobs,offerings,events} and of /healthz. Who is asking stands in the
// X-Business-Id header, which the gateway sets; the service trusts its network
// for that unless Options.Authorize verifies the gateway's assertion. Records
// have the public contract's fields and members of the service's own beside
// them (business_id; an event's status, published_at and created_at), which
// the gateway checks and takes out.
//
// The second is /connect/v1: reading and writing for an account of a business.
// Every write is kept once for its idempotency key, in the transaction that does
// it; automations run in the background and keep how far they are in the
// database. Their messages go to a table of the database and no further: this
// service sends nothing to anybody. The accounts that the function Accounts gives
// have passwords that are in the source: put no real records beside them.
//
// A new database is filled with the invented records of two active businesses
// and one inactive one, the same ones for the same Options.Now. A database that
// already holds businesses is left as it is, but for what /connect/v1 needs: where
// one of these businesses has none of that yet, it is added.
package demo
