package account

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

const (
	noBusiness = "-" // none is known yet

	maxResponseSize = 64 << 10
	maxID           = 255
	maxText         = 1024
)

// ClientOptions configure a [Client].
type ClientOptions struct {
	// Host is the Host header of the calls. Required.
	Host string

	// Do makes a call to the data service. The business is "-", and the request ID that of package requestlog. Required.
	Do func(context.Context, upstream.Call) (*upstream.Response, error)

	// Timeout is the timeout of one call, including retries. Password checks are slow by design. Required.
	Timeout time.Duration

	// OnWrongAccount is called with ErrWrongAccount for every response about another account than the one asked for. Default:
	// none.
	OnWrongAccount func(error)

	// Log gets an error for every such response. Required.
	Log *zap.Logger
}

// Client is a [Service] over HTTP:
//
//	POST /connect/v1/sign-in {"email","password"}
//	  200 {"account":{"id","email","name","role","business":{"id","name","slug","time_zone"}}}
//	  401 INVALID_CREDENTIALS, 422 INVALID the credentials are wrong
//	GET /connect/v1/accounts/{id}
//	  200 as above; 404 NOT_FOUND there is no such account
//
// Errors are {"error","code"}; docs/data-services.md describes the calls. All other responses, redirects included, are
// ErrUnavailable. An account other than the one asked for is ErrWrongAccount: a service or proxy that mixes up responses must
// not sign a user in as somebody else.
type Client struct {
	o ClientOptions
}

var _ Service = (*Client)(nil)

// NewClient returns a client.
func NewClient(o ClientOptions) (*Client, error) {
	if o.Host == "" || o.Do == nil || o.Timeout <= 0 || o.Log == nil {
		return nil, errors.New("accounts service client: Host, Do, Timeout and Log are required")
	}
	if o.OnWrongAccount == nil {
		o.OnWrongAccount = func(error) {}
	}
	return &Client{o}, nil
}

// SignIn implements [Service].
func (c *Client) SignIn(ctx context.Context, email, password string) (Account, error) {
	body, err := json.Marshal(map[string]string{"email": email, "password": password})
	if err != nil {
		return Account{}, fmt.Errorf("%w: encoding a sign-in: %w", ErrUnavailable, err)
	}
	a, failed, err := c.do(ctx, http.MethodPost, "/sign-in", body)
	switch {
	case err != nil:
		return Account{}, fmt.Errorf("signing in: %w", err)
	case failed == nil && FoldAddress(a.Email) != FoldAddress(email):
		return Account{}, c.wrongAccount(ctx, "signing in", a)
	case failed == nil:
		return a, nil
	case failed.is(http.StatusUnauthorized, "INVALID_CREDENTIALS"), failed.is(http.StatusUnprocessableEntity, "INVALID"):
		return Account{}, ErrWrongCredentials
	default:
		return Account{}, fmt.Errorf("%w: signing in: %s", ErrUnavailable, failed)
	}
}

// Account implements [Service].
func (c *Client) Account(ctx context.Context, id string) (Account, error) {
	if !validID(id) {
		return Account{}, ErrUnknown
	}
	a, failed, err := c.do(ctx, http.MethodGet, "/accounts/"+url.PathEscape(id), nil)
	switch {
	case err != nil:
		return Account{}, fmt.Errorf("looking up an account: %w", err)
	case failed != nil && failed.is(http.StatusNotFound, "NOT_FOUND"): // another 404 may mean a wrong address
		return Account{}, ErrUnknown
	case failed != nil:
		return Account{}, fmt.Errorf("%w: looking up an account: %s", ErrUnavailable, failed)
	case a.ID != id:
		return Account{}, c.wrongAccount(ctx, "looking up an account", a)
	}
	return a, nil
}

// wrongAccount reports a response about another account, and returns the call's error. The address that was asked for is not
// logged, because users also type passwords there.
func (c *Client) wrongAccount(ctx context.Context, doing string, received Account) error {
	err := fmt.Errorf("%s: %w", doing, ErrWrongAccount)
	c.o.Log.Error("rejected an accounts service's response", zap.String("event", "wrong_account"), zap.NamedError("cause", err),
		zap.String("received_account", received.ID), zap.String("received_business", received.BusinessID),
		zap.String("request_id", requestlog.ID(ctx)))
	c.o.OnWrongAccount(err)
	return err
}

// errorResponse is a response other than 200.
type errorResponse struct {
	status int
	code   string // "" if it could not be read
}

func (r *errorResponse) is(status int, code string) bool { return r.status == status && r.code == code }

func (r *errorResponse) String() string {
	text := fmt.Sprintf("status %d %q", r.status, r.code)
	if r.status == http.StatusUnauthorized {
		text += ": it rejects the gateway's assertion, or requires one"
	}
	return text
}

// do makes a call. It returns an account if there is neither an error response nor an error.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (Account, *errorResponse, error) {
	res, err := c.o.Do(ctx, upstream.Call{
		BusinessID: noBusiness, RequestID: requestlog.ID(ctx), Resource: upstream.ConnectAudience,
		Method: method, Path: "/connect/v1" + path, Host: c.o.Host, Body: body,
		Deadline: time.Now().Add(c.o.Timeout), MaxResponse: maxResponseSize,
	})
	if err != nil {
		return Account{}, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer res.Release()
	if res.Status != http.StatusOK {
		return Account{}, &errorResponse{status: res.Status, code: codeOf(res.Body)}, nil
	}
	a, err := decode(res.Body)
	if err != nil { // err names a field, never a value
		return Account{}, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return a, nil, nil
}

// codeOf returns the code of an error response, or "" if it is missing or invalid.
func codeOf(data []byte) string {
	var response struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(data, &response) != nil || !validID(response.Code) || len(response.Code) > 64 {
		return ""
	}
	return response.Code
}

func decode(data []byte) (Account, error) {
	var response struct {
		Account *struct {
			ID       string `json:"id"`
			Email    string `json:"email"`
			Name     string `json:"name"`
			Role     Role   `json:"role"`
			Business struct {
				ID   string `json:"id"`
				Name string `json:"name"`
				Slug string `json:"slug"`

				TimeZone string `json:"time_zone"`
			} `json:"business"`
		} `json:"account"`
	}
	if err := json.Unmarshal(data, &response); err != nil || response.Account == nil {
		return Account{}, errors.New("the response is not an account in JSON")
	}
	in := response.Account
	a := Account{
		ID: in.ID, Email: in.Email, Name: in.Name, Role: in.Role,
		BusinessID: in.Business.ID, BusinessName: in.Business.Name, BusinessSlug: in.Business.Slug,
		TimeZone: in.Business.TimeZone,
	}
	if a.Role != RoleOwner {
		a.Role = RoleMember
	}
	for _, f := range []struct {
		name string
		ok   bool
	}{
		{"id", validID(a.ID)},
		{"business.id", validID(a.BusinessID)},
		{"business.slug", validID(a.BusinessSlug)},
		{"email", a.Email != "" && validText(a.Email)},
		{"name", validText(a.Name)},
		{"business.name", a.BusinessName != "" && validText(a.BusinessName)},
	} {
		if !f.ok {
			return Account{}, fmt.Errorf("the account's %s is missing or invalid", f.name)
		}
	}
	return a, nil
}

// validID reports whether an ID can be used in headers and Redis keys. Credentials have the same rule.
func validID(s string) bool {
	return s != "" && len(s) <= maxID && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func validText(s string) bool {
	return len(s) <= maxText && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
