// Package upstream is the gateway's side towards the internal data services: which resources exist, what of a
// caller's request may travel on to the service behind one, how the service can tell that the gateway sent it, and
// what its answer must be before a caller sees any of it.
//
// The way of one request through this package:
//
//	res, raw, ok := upstream.Match(target)        // exact, or 404
//	q, err := res.CleanQuery(raw)                 // *ParameterError is the contract's 400
//	r2, err := upstream.PrepareRequest(r, res, q, id) // method, path, query, body and headers as the service gets them
//	response, err := client.RoundTrip(r2)              // one address, cleartext HTTP/1.1
//	err = upstream.CheckHead(res, status, header)      // 200 and JSON, or which of the contract's errors it becomes
//	report, err := contract.Check(&buf, res, q, businessID, body)
//	upstream.ForwardHeaders(w.Header(), header)   // none of the service's header fields but the documented ones
//
// Everything here is default deny: a path, parameter, header or record member that no table of this package names
// does not pass. What platform teams need to know about it is in docs/data-services.md.
//
// The package is an ordinary net/http library and knows nothing of the server around it.
package upstream
