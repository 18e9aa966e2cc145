// Package data is a client for the operations of a definition. docs/data-services.md describes those of the embedded one.
//
// Every call is made on behalf of a [Caller]: a business and one of its accounts. Responses with records of another business
// (upstream.ErrCrossTenantRecord) and those that the definition does not allow (upstream.ErrContractViolation) are rejected, and
// error texts are limited and cleaned.
package data
