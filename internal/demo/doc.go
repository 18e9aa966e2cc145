// Package demo is a small data service such as a platform team would run behind the gateway: business records in SQLite,
// served over HTTP as docs/data-services.md describes.
//
//   - GET and HEAD of /api/v1/{business,contacts,equipment,estimates,invoices,jobs,offerings,events} serve the public API,
//     and /healthz says whether the database is readable. The X-Business-Id header, which the gateway sets, selects the
//     business. The service trusts its network for that unless Options.Authorize verifies the gateway's assertion.
//     Records also have fields that the contract does not define (business_id; an event's status, published_at and
//     created_at), which the gateway checks and strips.
//   - /connect/v1 serves reads and writes on behalf of an account. Responses to writes are stored under their idempotency
//     key. Automations run in the background. Their messages end in the table outbox: the service sends nothing.
//
// A new database is filled with the invented records of seed/. The passwords of its accounts are public: put no real
// records beside them. A database that already has businesses keeps its records; those of /connect/v1 are added for
// businesses of seed/ that have no accounts yet.
package demo
