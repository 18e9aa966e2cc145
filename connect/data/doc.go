// Package data is a typed client for the calls under /connect/v1 of a data service, which docs/data-services.md describes.
//
// Every call is made for a [Caller]: a business and the account on whose behalf it is made. Responses with records of another
// business (upstream.ErrCrossTenantRecord) or of an undocumented form (upstream.ErrContractViolation) are rejected, and error
// texts are limited and cleaned.
package data
