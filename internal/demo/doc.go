// Package demo is a small data service as a platform team would run it behind
// the gateway: the business data of the public API over HTTP, kept in SQLite.
//
// It serves GET and HEAD of /api/v1/{business,contacts,equipment,estimates,
// invoices,jobs,offerings,events} and of /healthz. Who is asking stands in the
// X-Business-Id header, which the gateway sets; the service trusts its network
// for that unless Options.Authorize verifies the gateway's assertion. Records
// have the public contract's fields and members of the service's own beside
// them (business_id; an event's status, published_at and created_at), which
// the gateway checks and takes out.
//
// A new database is filled with the invented records of two active businesses
// and one inactive one, the same ones for the same Options.Now. A database that
// already holds businesses is left as it is.
package demo
