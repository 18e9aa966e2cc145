// Package upstream connects the gateway to internal data services. It defines the API's resources, cleans callers' requests,
// proves to a data service that a request comes from the gateway, and checks responses against the contract.
//
// The steps of one request:
//
//	m, ok := api.Match(target)                         // the path and its parameters; not ok: 404
//	op := m.Path.Operation(r.Method)                   // nil: 405
//	q, err := op.CleanQuery(m)                         // *ParameterError: 400
//	err = op.CheckBusiness(q, business)                // *ParameterError: 400
//	call := upstream.NewCall(r, op, q, business, id)   // the call to the data service
//	r2, err := call.NewRequest(ctx, assertion)
//	response, err := client.Exchange(r2, deadline)     // one address, HTTP/1.1
//	res, err := op.CheckHeader(status, header, false)  // status and headers
//	report, err := contract.Check(&buf, op, res, q, business, body)
//	upstream.ForwardHeaders(w.Header(), header)        // Deprecation and Sunset only
//
// Everything is default deny: paths, parameters, headers and fields that the contract does not define are rejected or removed.
// docs/data-services.md describes the requirements for data services.
package upstream
