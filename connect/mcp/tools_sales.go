package mcp

import (
	"context"

	"github.com/gatehouse-gateway/gatehouse/connect/data"
)

type invoicePage struct {
	Invoices []data.Invoice `json:"invoices" maxItems:"100"`
	nextCursor
}

type invoiceResult struct {
	Invoice data.Invoice `json:"invoice"`
}

type estimatePage struct {
	Estimates []data.Estimate `json:"estimates" maxItems:"100"`
	nextCursor
}

type estimateResult struct {
	Estimate data.Estimate `json:"estimate"`
}

type jobPage struct {
	Jobs []data.Job `json:"jobs" maxItems:"100"`
	nextCursor
}

type jobResult struct {
	Job data.Job `json:"job"`
}

func salesTools() []*tool {
	return []*tool{
		{
			name:        "invoices_search",
			title:       "Search invoices",
			description: "Find invoices, newest first. For unpaid invoices, use the statuses sent, viewed and overdue.",
			scope:       "sales:read", about: "invoice",
			arguments: listing("the invoice's number and title and the contact's name"),
			function: handle(func(ctx context.Context, c *toolCall, f data.InvoiceFilter) (invoicePage, error) {
				page, err := c.data().Invoices(ctx, c.by, f)
				return invoicePage{page.Items, next(page.Next)}, err
			}),
		},
		{
			name:        "invoices_get",
			title:       "Get invoice",
			description: "One invoice with its amounts and dates.",
			scope:       "sales:read", about: "invoice",
			arguments: naming("invoice", "invoices_search"),
			function: handle(func(ctx context.Context, c *toolCall, a idArguments) (invoiceResult, error) {
				invoice, err := c.data().Invoice(ctx, c.by, a.ID)
				return invoiceResult{invoice}, err
			}),
		},
		{
			name:        "estimates_search",
			title:       "Search estimates",
			description: "Find estimates (quotes), newest first, filtered by their status or payment status.",
			scope:       "sales:read", about: "estimate",
			arguments: listing("the estimate's number and title and the contact's name"),
			function: handle(func(ctx context.Context, c *toolCall, f data.EstimateFilter) (estimatePage, error) {
				page, err := c.data().Estimates(ctx, c.by, f)
				return estimatePage{page.Items, next(page.Next)}, err
			}),
		},
		{
			name:        "estimates_get",
			title:       "Get estimate",
			description: "One estimate (quote) with its amounts, deposit and dates.",
			scope:       "sales:read", about: "estimate",
			arguments: naming("estimate", "estimates_search"),
			function: handle(func(ctx context.Context, c *toolCall, a idArguments) (estimateResult, error) {
				estimate, err := c.data().Estimate(ctx, c.by, a.ID)
				return estimateResult{estimate}, err
			}),
		},
		{
			name:        "jobs_search",
			title:       "Search jobs",
			description: "Find pieces of work that the business does or has done, newest first.",
			scope:       "sales:read", about: "job",
			arguments: listing("the job's number, name and description and the contact's name"),
			function: handle(func(ctx context.Context, c *toolCall, f data.JobFilter) (jobPage, error) {
				page, err := c.data().Jobs(ctx, c.by, f)
				return jobPage{page.Items, next(page.Next)}, err
			}),
		},
		{
			name:        "jobs_get",
			title:       "Get job",
			description: "One piece of work with its status and the amount that is not paid yet.",
			scope:       "sales:read", about: "job",
			arguments: naming("job", "jobs_search"),
			function: handle(func(ctx context.Context, c *toolCall, a idArguments) (jobResult, error) {
				job, err := c.data().Job(ctx, c.by, a.ID)
				return jobResult{job}, err
			}),
		},
	}
}
