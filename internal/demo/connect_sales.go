package demo

import (
	"context"
	"net/http"
)

// named is a paper with the name of the contact whom it is for.
type named[T any] struct {
	paper       T
	ContactName string
}

func namedFields[T any](fields []field[T]) []field[named[T]] {
	type r = named[T]
	return append(shown(embedded(fields, func(r *r) *T { return &r.paper }), "contact_id", "job_id"),
		text("contact_name", func(r *r) *string { return &r.ContactName }))
}

func saleRoutes() []route {
	invoices := &kindOf[named[invoice]]{
		one: "invoice", many: "invoices", what: "invoice", table: "connect_invoices", fields: namedFields(invoiceFields()),
		key: "created_at", id: "id", newest: true, search: "invoice_number || ' ' || title || ' ' || contact_name",
	}
	estimates := &kindOf[named[estimate]]{
		one: "estimate", many: "estimates", what: "estimate", table: "connect_estimates", fields: namedFields(estimateFields()),
		key: "created_at", id: "id", newest: true, search: "estimate_number || ' ' || title || ' ' || contact_name",
	}
	jobs := &kindOf[named[job]]{
		one: "job", many: "jobs", what: "job", table: "connect_jobs", fields: namedFields(jobFields()),
		key: "created_at", id: "id", newest: true,
		search: "job_number || ' ' || name || ' ' || coalesce(description, '') || ' ' || contact_name",
	}
	return []route{
		{method: http.MethodGet, path: "invoices", serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			q := c.parameters()
			return invoices.page(ctx, c, q,
				equal("status", q.word("status", "draft", "sent", "viewed", "paid", "overdue", "voided"))...)
		}},
		{method: http.MethodGet, path: "invoices/{id}", serve: invoices.get},
		{method: http.MethodGet, path: "estimates", serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			q := c.parameters()
			return estimates.page(ctx, c, q, append(
				equal("status", q.word("status", "draft", "sent", "approved", "declined", "expired")),
				equal("payment_status", q.word("payment_status", "unpaid", "partial", "paid"))...)...)
		}},
		{method: http.MethodGet, path: "estimates/{id}", serve: estimates.get},
		{method: http.MethodGet, path: "jobs", serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			q := c.parameters()
			return jobs.page(ctx, c, q, equal("work_status",
				q.word("status", "draft", "sent", "scheduled", "in_progress", "completed", "cancelled"))...)
		}},
		{method: http.MethodGet, path: "jobs/{id}", serve: jobs.get},
	}
}
