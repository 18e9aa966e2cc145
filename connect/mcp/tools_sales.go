package mcp

import (
	"context"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

func invoiceStatuses() node {
	return oneOf("draft", "sent", "viewed", "paid", "overdue", "voided")
}

func estimateStatuses() node { return oneOf("draft", "sent", "approved", "declined", "expired") }
func paymentStatuses() node  { return oneOf("unpaid", "partial", "paid") }
func jobStatuses() node {
	return oneOf("draft", "sent", "scheduled", "in_progress", "completed", "cancelled")
}

// party are the members that say whom a record is about.
func party() []field {
	return []field{must("contact_id", contactID().orNull()), must("contact_name", words(512))}
}

func amounts() []field {
	return []field{
		must("subtotal", money()), must("discount_type", words(40)), must("discount_value", money()),
		must("tax_rate", money().because("Per cent.")), must("tax_amount", money()), must("total_amount", money()),
	}
}

func times(names ...string) []field {
	fields := make([]field, 0, len(names)+2)
	for _, name := range names {
		fields = append(fields, must(name, whenever()))
	}
	return append(fields, must("created_at", instant()), must("updated_at", instant()))
}

func joined(groups ...[]field) node {
	var all []field
	for _, g := range groups {
		all = append(all, g...)
	}
	return object(all...)
}

func invoiceSchema() node {
	return joined(
		[]field{must("id", id()), must("invoice_number", free(64)), must("title", words(1000)), must("status", invoiceStatuses())},
		party(), []field{must("job_id", id().orNull())}, amounts(),
		[]field{must("paid_amount", money().because("Paid so far; what is open is total_amount less this."))},
		times("due_at", "issued_at", "sent_at", "paid_at"),
	)
}

func estimateSchema() node {
	return joined(
		[]field{
			must("id", id()), must("estimate_number", free(64)), must("title", words(1000)), must("status", estimateStatuses()),
			must("payment_status", paymentStatuses().orNull()),
		},
		party(), []field{must("job_id", id().orNull())}, amounts(),
		[]field{
			must("deposit_required", boolean().orNull()), must("deposit_amount", money()), must("amount_paid", money()),
		},
		times("expires_at", "sent_at", "approved_at"),
	)
}

func jobSchema() node {
	return joined(
		[]field{
			must("id", id()), must("job_number", free(64)), must("name", words(1000)), must("description", words(20_000)),
			must("work_status", jobStatuses()),
		},
		party(),
		[]field{must("total_amount", money()), must("outstanding_balance", money()), must("lead_source", words(255))},
		times(),
	)
}

type salesSearch struct {
	listArguments

	Status        string `json:"status"`
	PaymentStatus string `json:"payment_status"`
}

func (a salesSearch) filter() data.SalesFilter {
	return data.SalesFilter{Query: a.Query, Status: a.Status, PaymentStatus: a.PaymentStatus, List: a.list()}
}

// searching are a sales tool's arguments.
func searching(looksAt string, filters ...field) node {
	fields := append([]field{may("query", queryArgument(looksAt))}, filters...)
	return object(append(fields, may("limit", limitArgument()), may("cursor", cursorArgument()))...)
}

func salesTools() []*tool {
	return []*tool{
		{
			name:        "invoices_search",
			title:       "Search invoices",
			description: "Find invoices, newest first. For money that is owed look at the statuses sent, viewed and overdue.",
			scope:       "sales:read", about: "invoice",
			in:  searching("the invoice's number and title and the contact's name", may("status", invoiceStatuses())),
			out: part("invoices", invoiceSchema()),
			run: handle(func(ctx context.Context, c *toolCall, a salesSearch) (*outcome, error) {
				page, err := c.data().Invoices(ctx, c.by, a.filter())
				return listed("invoices", page, err)
			}),
		},
		{
			name:        "invoices_get",
			title:       "Get invoice",
			description: "One invoice with its amounts and dates.",
			scope:       "sales:read", about: "invoice",
			in:  object(must("id", idArgument("invoice", "invoices_search"))),
			out: object(must("invoice", invoiceSchema())),
			run: handle(func(ctx context.Context, c *toolCall, a idArguments) (*outcome, error) {
				invoice, err := c.data().Invoice(ctx, c.by, a.ID)
				return found("invoice", invoice, err)
			}),
		},
		{
			name:        "estimates_search",
			title:       "Search estimates",
			description: "Find estimates (quotes), newest first, by their own status or by what is paid of them.",
			scope:       "sales:read", about: "estimate",
			in: searching("the estimate's number and title and the contact's name",
				may("status", estimateStatuses()), may("payment_status", paymentStatuses())),
			out: part("estimates", estimateSchema()),
			run: handle(func(ctx context.Context, c *toolCall, a salesSearch) (*outcome, error) {
				page, err := c.data().Estimates(ctx, c.by, a.filter())
				return listed("estimates", page, err)
			}),
		},
		{
			name:        "estimates_get",
			title:       "Get estimate",
			description: "One estimate (quote) with its amounts, deposit and dates.",
			scope:       "sales:read", about: "estimate",
			in:  object(must("id", idArgument("estimate", "estimates_search"))),
			out: object(must("estimate", estimateSchema())),
			run: handle(func(ctx context.Context, c *toolCall, a idArguments) (*outcome, error) {
				estimate, err := c.data().Estimate(ctx, c.by, a.ID)
				return found("estimate", estimate, err)
			}),
		},
		{
			name:        "jobs_search",
			title:       "Search jobs",
			description: "Find pieces of work that the business does or has done, newest first.",
			scope:       "sales:read", about: "job",
			in: searching("the job's number, name and description and the contact's name",
				may("status", jobStatuses().because("The work's status."))),
			out: part("jobs", jobSchema()),
			run: handle(func(ctx context.Context, c *toolCall, a salesSearch) (*outcome, error) {
				page, err := c.data().Jobs(ctx, c.by, a.filter())
				return listed("jobs", page, err)
			}),
		},
		{
			name:        "jobs_get",
			title:       "Get job",
			description: "One piece of work with its status and what is still to be paid.",
			scope:       "sales:read", about: "job",
			in:  object(must("id", idArgument("job", "jobs_search"))),
			out: object(must("job", jobSchema())),
			run: handle(func(ctx context.Context, c *toolCall, a idArguments) (*outcome, error) {
				job, err := c.data().Job(ctx, c.by, a.ID)
				return found("job", job, err)
			}),
		},
	}
}
