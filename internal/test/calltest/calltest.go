// Package calltest makes calls to data services without a gateway, for tests of what makes such calls.
package calltest

import (
	"context"
	"io"
	"net/http"

	"github.com/gatehouse-gateway/gatehouse/upstream"
)

// Over returns a function that makes calls over a transport, to the address that is the call's Host. Release overwrites the
// response's body, so that a test fails if something keeps a part of it.
func Over(transport http.RoundTripper) func(context.Context, upstream.Call) (*upstream.Response, error) {
	return func(ctx context.Context, call upstream.Call) (*upstream.Response, error) {
		ctx, cancel := context.WithDeadline(ctx, call.Deadline)
		defer cancel()
		req, err := call.NewRequest(ctx, "")
		if err != nil {
			return nil, err
		}
		req.URL.Scheme, req.URL.Host, req.RequestURI = "http", call.Host, ""
		got, err := transport.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		defer func() { _ = got.Body.Close() }()
		if got.StatusCode == http.StatusSwitchingProtocols {
			return nil, upstream.ErrUnexpectedInformational
		}
		body, err := io.ReadAll(io.LimitReader(got.Body, call.MaxResponse+1))
		if err == nil && int64(len(body)) > call.MaxResponse {
			err = upstream.ErrResponseTooLarge
		}
		if err != nil {
			return nil, err
		}
		return &upstream.Response{Status: got.StatusCode, Header: got.Header, Body: body, Address: call.Host, Hosts: [4]string{call.Host}, Free: func() {
			for i := range body {
				body[i] = '!'
			}
		}}, nil
	}
}
