package mcp

import (
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
		"invoices_search":  list((*data.Client).Invoices, func(all []data.Invoice, n nextCursor) invoicePage { return invoicePage{all, n} }),
		"invoices_get":     get((*data.Client).Invoices, func(one data.Invoice) invoiceResult { return invoiceResult{one} }),
		"estimates_search": list((*data.Client).Estimates, func(all []data.Estimate, n nextCursor) estimatePage { return estimatePage{all, n} }),
		"estimates_get":    get((*data.Client).Estimates, func(one data.Estimate) estimateResult { return estimateResult{one} }),
		"jobs_search":      list((*data.Client).Jobs, func(all []data.Job, n nextCursor) jobPage { return jobPage{all, n} }),
		"jobs_get":         get((*data.Client).Jobs, func(one data.Job) jobResult { return jobResult{one} }),
	}
}
