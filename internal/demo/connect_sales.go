package demo

import (
	"context"
	"net/http"
)

// The records of sales with the name of the contact they are for.
type (
	connectInvoice struct {
		invoice
		ContactName string `db:"contact_name"`
	}
	connectEstimate struct {
		estimate
		ContactName string `db:"contact_name"`
	}
	connectJob struct {
		job
		ContactName string `db:"contact_name"`
	}
)

func saleRoutes() []route {
	invoices := &kindOf[connectInvoice]{
		one: "invoice", many: "invoices", what: "invoice", table: "connect_invoices", fields: shown(fieldsOf[connectInvoice](), "contact_id", "job_id"),
		key: "created_at", id: "id", newest: true, search: "invoice_number || ' ' || title || ' ' || contact_name",
	}
	estimates := &kindOf[connectEstimate]{
		one: "estimate", many: "estimates", what: "estimate", table: "connect_estimates", fields: shown(fieldsOf[connectEstimate](), "contact_id", "job_id"),
		key: "created_at", id: "id", newest: true, search: "estimate_number || ' ' || title || ' ' || contact_name",
	}
	jobs := &kindOf[connectJob]{
		one: "job", many: "jobs", what: "job", table: "connect_jobs", fields: shown(fieldsOf[connectJob](), "contact_id", "job_id"),
		key: "created_at", id: "id", newest: true,
		search: "job_number || ' ' || name || ' ' || coalesce(description, '') || ' ' || contact_name",
	}
	return []route{
		{method: http.MethodGet, path: "invoices", query: true, serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			q := c.parameters()
			return invoices.page(ctx, c, q,
				equal("status", q.word("status", "draft", "sent", "viewed", "paid", "overdue", "voided"))...)
		}},
		{method: http.MethodGet, path: "invoices/{id}", serve: invoices.get},
		{method: http.MethodGet, path: "estimates", query: true, serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			q := c.parameters()
			return estimates.page(ctx, c, q, append(
				equal("status", q.word("status", "draft", "sent", "approved", "declined", "expired")),
				equal("payment_status", q.word("payment_status", "unpaid", "partial", "paid"))...)...)
		}},
		{method: http.MethodGet, path: "estimates/{id}", serve: estimates.get},
		{method: http.MethodGet, path: "jobs", query: true, serve: func(ctx context.Context, c *connectCall) (int, []byte, error) {
			q := c.parameters()
			return jobs.page(ctx, c, q, equal("work_status",
				q.word("status", "draft", "sent", "scheduled", "in_progress", "completed", "cancelled"))...)
		}},
		{method: http.MethodGet, path: "jobs/{id}", serve: jobs.get},
	}
}
