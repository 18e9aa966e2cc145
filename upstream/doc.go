// Package upstream connects the gateway to internal data services. It defines the API's resources, cleans callers' requests,
// proves to a data service that a request comes from the gateway, and checks responses against the contract.
//
// The steps of one request:
//
//	res, raw, ok := api.Match(target)                  // exact match, or 404
//	q, err := res.CleanQuery(raw)                      // *ParameterError: 400
//	call := upstream.NewCall(r, res, q, business, id)  // what to ask the data service
//	r2, err := call.NewRequest(ctx, assertion)
//	response, err := client.Exchange(r2, deadline)     // one address, HTTP/1.1
//	err = upstream.CheckHeader(res, status, header)    // status and headers
//	report, err := contract.Check(&buf, res, q, businessID, body)
//	upstream.ForwardHeaders(w.Header(), header)        // documented response headers only
//
// Everything is default deny: paths, parameters, headers and fields that the contract does not define are rejected or removed.
// docs/data-services.md describes the requirements for data services.
package upstream
