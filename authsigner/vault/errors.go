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

// answerError is an error that Vault answered, in one line. What it could not be read as is left out: it need not have
// come from Vault.
type answerError struct{ *api.ResponseError }

func (e answerError) Error() string {
	what := strings.Join(e.Errors, "; ")
	switch {
	case e.RawError:
		what = "and nothing that can be read"
	case what == "":
		what = http.StatusText(e.StatusCode)
	}
	return fmt.Sprintf("vault answered %d to %s %s: %s", e.StatusCode, e.HTTPMethod, e.URL, strings.Join(strings.Fields(what), " "))
}

func (e answerError) Unwrap() error { return e.ResponseError }

// readable makes an error of the client fit for one line of a log.
func readable(err error) error {
	if _, ok := errors.AsType[answerError](err); ok {
		return err // it is already
	}
	if answer := (*api.ResponseError)(nil); errors.As(err, &answer) {
		return answerError{answer}
	}
	return err
}

// keyless is an error without the path that was asked for. Readiness shows the last error, and the path ends in a key that
// any stranger may have named.
func keyless(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%s: %w", strings.ToLower(failed.Op), failed.Err)
	}
	if answer, ok := errors.AsType[answerError](err); ok {
		return fmt.Errorf("vault answered %d to %s", answer.StatusCode, answer.HTTPMethod)
	}
	return err
}

// keylessError is an error of a look-up that does not say which key was looked up, in the path that was asked for, say:
// whoever asked knows, and any stranger may have named it.
type keylessError struct {
	error

	key string
}

func (e keylessError) Error() string { return strings.ReplaceAll(e.error.Error(), e.key, "…") }

func (e keylessError) Unwrap() error { return e.error }

// statusOf is the status of Vault's answer if it was an error, and 0 otherwise.
func statusOf(err error) int {
	if answer := (*api.ResponseError)(nil); errors.As(err, &answer) {
		return answer.StatusCode
	}
	return 0
}

// replyLost says whether a change that failed with err may have been made all the same: Vault got the request, or may have,
// and has not refused it.
func replyLost(err error) bool {
	if err == nil {
		return false
	}
	switch statusOf(err) {
	case 0:
		failed := (*net.OpError)(nil)
		return !errors.As(err, &failed) || failed.Op != "dial"
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
