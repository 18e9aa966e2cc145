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

func salesTools() map[string]function {
	return map[string]function{
		"invoices_search": handle(func(ctx context.Context, c *toolCall, f data.InvoiceFilter) (invoicePage, error) {
			page, err := c.data().Invoices().List(ctx, c.caller, f)
			return invoicePage{page.Items, next(page.Next)}, err
		}),
		"invoices_get": handle(func(ctx context.Context, c *toolCall, a idArguments) (invoiceResult, error) {
			invoice, err := c.data().Invoices().Get(ctx, c.caller, a.ID)
			return invoiceResult{invoice}, err
		}),
		"estimates_search": handle(func(ctx context.Context, c *toolCall, f data.EstimateFilter) (estimatePage, error) {
			page, err := c.data().Estimates().List(ctx, c.caller, f)
			return estimatePage{page.Items, next(page.Next)}, err
		}),
		"estimates_get": handle(func(ctx context.Context, c *toolCall, a idArguments) (estimateResult, error) {
			estimate, err := c.data().Estimates().Get(ctx, c.caller, a.ID)
			return estimateResult{estimate}, err
		}),
		"jobs_search": handle(func(ctx context.Context, c *toolCall, f data.JobFilter) (jobPage, error) {
			page, err := c.data().Jobs().List(ctx, c.caller, f)
			return jobPage{page.Items, next(page.Next)}, err
		}),
		"jobs_get": handle(func(ctx context.Context, c *toolCall, a idArguments) (jobResult, error) {
			job, err := c.data().Jobs().Get(ctx, c.caller, a.ID)
			return jobResult{job}, err
		}),
	}
}
