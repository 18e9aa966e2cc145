// Package data is the connection server's client to a business's data service: the calls under /connect/v1 that
// docs/data-services.md describes, typed, bounded and checked.
//
// Every call is made for a [Caller]: one business, and the account on whose behalf it is done. Whatever a service sends
// back that belongs to another business is refused ([ErrForeign]), and what is not the documented shape is refused as
// well ([ErrUnexpected]); a service's own error pages never get past this package.
package data
