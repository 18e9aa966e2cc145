package vault

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/hashicorp/vault/api"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
)

// responseError formats an error response in one line. It omits a body that is not JSON, which may not be from Vault.
type responseError struct{ *api.ResponseError }

func (e responseError) Error() string {
	what := strings.Join(e.Errors, "; ")
	switch {
	case e.RawError:
		what = "unreadable body"
	case what == "":
		what = http.StatusText(e.StatusCode)
	}
	return fmt.Sprintf("vault responded with %d to %s %s: %s", e.StatusCode, e.HTTPMethod, e.URL, strings.Join(strings.Fields(what), " "))
}

func (e responseError) Unwrap() error { return e.ResponseError }

// readable formats an error of the client in one line.
func readable(err error) error {
	if _, ok := errors.AsType[responseError](err); ok {
		return err
	}
	if response, ok := errors.AsType[*api.ResponseError](err); ok {
		return responseError{response}
	}
	return err
}

// keyless returns an error without the request's path, which contains a public key. Readiness shows the last error, and a caller may
// have invented the key.
func keyless(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%s: %w", strings.ToLower(failed.Op), failed.Err)
	}
	if response, ok := errors.AsType[responseError](err); ok {
		return fmt.Errorf("vault responded with %d to %s", response.StatusCode, response.HTTPMethod)
	}
	return err
}

// keylessError hides the public key in an error of a lookup, such as in the request's path, because a caller may have invented it.
type keylessError struct {
	error

	key string
}

func (e keylessError) Error() string { return strings.ReplaceAll(e.error.Error(), e.key, "…") }

func (e keylessError) Unwrap() error { return e.error }

// statusOf returns the status of Vault's error response, or 0.
func statusOf(err error) int {
	if response, ok := errors.AsType[*api.ResponseError](err); ok {
		return response.StatusCode
	}
	return 0
}

// replyLost reports whether a change may have been made although it failed with err: Vault may have received the request and has
// not rejected it.
func replyLost(err error) bool {
	if err == nil {
		return false
	}
	switch statusOf(err) {
	case 0:
		failed, ok := errors.AsType[*net.OpError](err)
		return !ok || failed.Op != "dial"
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func unavailable(err error) error {
	if errors.Is(err, authsigner.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", authsigner.ErrUnavailable, err)
}
