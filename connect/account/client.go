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

	"github.com/gatehouse-gateway/gatehouse/connect/data"
	"github.com/gatehouse-gateway/gatehouse/connect/requestlog"
	"github.com/gatehouse-gateway/gatehouse/upstream"
)

const (
	noBusiness = "-" // the business is not known yet

	maxResponseSize = 64 << 10 // bytes
	maxID           = 255      // bytes
	maxText         = 1024     // bytes
)

// Client is a [Service] over HTTP. It makes the calls signIn and getAccount of connect/definition.yaml, which docs/data-services.md
// describes.
//
// Every response without an account is ErrUnavailable, redirects included, except documented errors that mean ErrWrongCredentials or
// ErrUnknown. A service or proxy that mixes up responses must not sign a user in as somebody else: see ErrWrongAccount.
type Client struct{ o data.Options }

var _ Service = (*Client)(nil)

// NewClient returns a client. Host, Do, Timeout and Log are required; Timeout must leave time to check a password, which is slow by
// design. The business ID of its calls is "-", and the request ID is that of package requestlog. OnResponse is called for each response,
// for one about an account other than the requested one with ErrWrongAccount, and then Log gets an error, too.
func NewClient(o data.Options) (*Client, error) {
	if o.Host == "" || o.Do == nil || o.Timeout <= 0 || o.Log == nil {
		return nil, errors.New("accounts service client: Host, Do, Timeout and Log are required")
	}
	if o.OnResponse == nil {
		o.OnResponse = func(error) {}
	}
	return &Client{o}, nil
}

// SignIn implements [Service].
func (c *Client) SignIn(ctx context.Context, email, password string) (Account, error) {
	body, err := json.Marshal(map[string]string{"email": email, "password": password})
	if err != nil {
		return Account{}, fmt.Errorf("%w: encoding a sign-in: %w", ErrUnavailable, err)
	}
	isRequested := func(a Account) bool { return FoldAddress(a.Email) == FoldAddress(email) }
	return c.do(ctx, "signing in", http.MethodPost, "/sign-in", body, isRequested, map[string]error{
		`401 "INVALID_CREDENTIALS"`: ErrWrongCredentials, `422 "INVALID"`: ErrWrongCredentials,
	})
}

// Account implements [Service].
func (c *Client) Account(ctx context.Context, id string) (Account, error) {
	if !validID(id) {
		return Account{}, ErrUnknown
	}
	isRequested := func(a Account) bool { return a.ID == id }
	return c.do(ctx, "looking up an account", http.MethodGet, "/accounts/"+url.PathEscape(id), nil, isRequested, map[string]error{
		`404 "NOT_FOUND"`: ErrUnknown, // a 404 without the code may be due to a wrong service address
	})
}

// do makes a call. known has the errors for expected error responses, by status and quoted code, such as `404 "NOT_FOUND"`. It does not log
// the address of a sign-in, because users also type passwords into that field.
func (c *Client) do(
	ctx context.Context, doing, method, path string, body []byte, isRequested func(Account) bool, known map[string]error,
) (Account, error) {
	share := path // of the account, whose pages can be asked for many times at once; sign-ins have limits of their own
	if body != nil {
		share = ""
	}
	res, err := c.o.Do(ctx, upstream.Call{
		BusinessID: noBusiness, Share: share, RequestID: requestlog.ID(ctx), Resource: upstream.ConnectAudience,
		Method: method, Path: "/connect/v1" + path, Host: c.o.Host, Body: body,
		Deadline: time.Now().Add(c.o.Timeout), MaxResponse: maxResponseSize,
	})
	if err != nil {
		if errors.Is(err, upstream.ErrContractViolation) {
			c.o.OnResponse(err)
		}
		return Account{}, fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	}
	defer res.Release()
	status := fmt.Sprintf("%d %q", res.Status, data.CodeOf(res.Body))
	a, err := decode(res.Body) // err names a field, never a value
	kind := upstream.ErrContractViolation
	switch {
	case known[status] != nil:
		c.o.OnResponse(nil)
		return Account{}, known[status]
	case res.Status == http.StatusUnauthorized:
		err = errors.New("status " + status + ": it rejects the gateway's assertion, or requires one")
	case res.Status == http.StatusTooManyRequests, res.Status >= http.StatusInternalServerError:
		kind, err = upstream.ErrUpstreamUnavailable, errors.New("status "+status)
	case res.Status != http.StatusOK:
		err = errors.New("status " + status)
	case err == nil && isRequested(a):
		c.o.OnResponse(nil)
		return a, nil
	case err == nil:
		err = fmt.Errorf("%s: %w", doing, ErrWrongAccount)
		c.o.Log.Error("rejected an accounts service's response", zap.String("event", "wrong_account"), zap.NamedError("cause", err),
			zap.String("received_account", a.ID), zap.String("received_business", a.BusinessID), zap.String("request_id", requestlog.ID(ctx)))
		c.o.OnResponse(err)
		return Account{}, err
	}
	c.o.OnResponse(kind)
	return Account{}, fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
}

func decode(body []byte) (Account, error) {
	var response struct {
		Account *Account `json:"account"`
	}
	if err := json.Unmarshal(body, &response); err != nil || response.Account == nil {
		return Account{}, errors.New("the response is not an account in JSON")
	}
	a := *response.Account
	if a.Role != RoleOwner {
		a.Role = RoleMember
	}
	for _, f := range []struct {
		name  string
		valid bool
	}{
		{"id", validID(a.ID)},
		{"business.id", validID(a.BusinessID) && a.BusinessID != noBusiness},
		{"business.slug", validID(a.BusinessSlug)},
		{"email", a.Email != "" && validText(a.Email)},
		{"name", validText(a.Name)},
		{"business.name", a.BusinessName != "" && validText(a.BusinessName)},
	} {
		if !f.valid {
			return Account{}, fmt.Errorf("the account's %s is missing or invalid", f.name)
		}
	}
	return a, nil
}

// validID reports whether an ID is visible ASCII, and so can be used in headers and Redis keys. Credentials have the same rule.
func validID(s string) bool {
	return s != "" && len(s) <= maxID && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func validText(s string) bool {
	return len(s) <= maxText && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
