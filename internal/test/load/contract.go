package load

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/authsigner"
	"github.com/gatehouse-gateway/gatehouse/internal/test/gatewaytest"
)

// Targets are the default targets of a load, served by the gateway itself and by data services.
func Targets() []string {
	return []string{
		"/api/v1/events?count=3", "/api/v1/contacts?per_page=2", "/api/v1/me", "/api/v1/invoices?page=2&per_page=2&status=paid",
		"/api/v1/business", "/api/v1/jobs", "/api/v1/status",
	}
}

// NewKeys returns credentials, spread evenly over a number of businesses.
func NewKeys(n, businesses int) []*authsigner.Credential {
	keys := make([]*authsigner.Credential, n)
	for i := range keys {
		slug := "load-" + strconv.Itoa(i%businesses)
		keys[i] = &authsigner.Credential{
			PublicKey: "pk_test_" + rand.Text(), PrivateKey: authsigner.Secret(rand.Text()), Status: authsigner.StatusActive,
			BusinessID: "business-of-" + slug, BusinessName: "The business " + slug, BusinessSlug: slug,
		}
	}
	return keys
}

// Callers returns callers with these keys.
func Callers(keys []*authsigner.Credential) []Caller {
	callers := make([]Caller, len(keys))
	for i, k := range keys {
		callers[i] = Caller{gatewaytest.Caller{PublicKey: k.PublicKey, PrivateKey: k.PrivateKey}, k.BusinessID}
	}
	return callers
}

// Data is a data service that stamps every record with the business and the request that it was made for, so that Check notices
// a response that goes to another caller.
func Data() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		business := r.Header.Get("X-Business-Id")
		stamp := stampOf(business, r.Header.Get("X-Request-Id"))
		name := strings.TrimPrefix(r.URL.Path, "/api/v1/")
		number := func(parameter string, otherwise int) int {
			if n, err := strconv.Atoi(r.URL.Query().Get(parameter)); err == nil {
				return n
			}
			return otherwise
		}
		body := map[string]any{}
		if name == "business" {
			body[name] = map[string]any{"id": business, "name": stamp}
		} else {
			var records []map[string]any
			for i := range 2 {
				record := map[string]any{"id": fmt.Sprintf("00000000-0000-4000-8000-%012d", i+1), "business_id": business, stampField(name): stamp}
				switch name {
				case "contacts":
					record["id"] = i + 1
				case "events":
					record["status"], record["published_at"] = "published", "2026-01-01T00:00:00Z"
				}
				records = append(records, record)
			}
			body[name] = records
			if name != "events" {
				body["pagination"] = map[string]any{
					"current_page": number("page", 1), "per_page": number("per_page", 25), "total_items": 50, "total_pages": 25,
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Server", "canary-upstream-banner")
		_ = json.NewEncoder(w).Encode(body)
	})
}

func stampOf(business, requestID string) string { return business + " " + requestID }

// stampField returns a text member of a resource's records.
func stampField(resource string) string {
	switch resource {
	case "contacts":
		return "notes"
	case "equipment", "business":
		return "name"
	case "estimates", "invoices":
		return "title"
	default:
		return "description"
	}
}

// statuses are the codes of the contract's errors (section 3).
func statuses() map[string]int {
	return map[string]int{
		"INVALID_PARAMETER": http.StatusBadRequest, "MISSING_CREDENTIALS": http.StatusUnauthorized,
		"REQUEST_EXPIRED": http.StatusUnauthorized, "INVALID_CREDENTIALS": http.StatusUnauthorized,
		"ACCOUNT_INACTIVE": http.StatusForbidden, "NOT_FOUND": http.StatusNotFound,
		"METHOD_NOT_ALLOWED": http.StatusMethodNotAllowed, "BODY_TOO_LARGE": http.StatusRequestEntityTooLarge,
		"RATE_LIMITED": http.StatusTooManyRequests, "INTERNAL": http.StatusInternalServerError,
		"UPSTREAM_FAILED": http.StatusBadGateway, "SERVICE_UNAVAILABLE": http.StatusServiceUnavailable,
		"UPSTREAM_TIMEOUT": http.StatusGatewayTimeout,
	}
}

// Check returns what is wrong with a response, and its code if it is an error of the contract. A success must contain records of
// this business and of this very request, as Data makes them.
func Check(a *gatewaytest.Response, business string) (code string, err error) {
	ids := a.Header["X-Request-Id"]
	switch {
	case len(ids) != 1 || ids[0] == "":
		return "", errors.New("not one request ID")
	case a.Header.Get("Content-Type") != "application/json":
		return "", errors.New("the type is not JSON")
	case a.Header.Get("Server") != "" || a.Header.Get("Via") != "" || a.Header.Get("X-Powered-By") != "":
		return "", errors.New("a banner")
	}
	if a.Status == http.StatusOK {
		if a.Header.Get("X-Ratelimit-Limit") == "" || a.Header.Get("Ratelimit-Policy") == "" || a.Header.Get("Ratelimit") == "" {
			return "", errors.New("no rate limit headers")
		}
		return "", checkRecords(a, business, ids[0])
	}
	var p struct {
		Error      string `json:"error"`
		Code       string `json:"code"`
		RequestID  string `json:"request_id"`
		Message    string `json:"message"`
		RetryAfter int    `json:"retry_after"`
	}
	decoder := json.NewDecoder(strings.NewReader(a.Body))
	if err := decoder.Decode(&p); err != nil {
		return "", fmt.Errorf("invalid JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return p.Code, errors.New("more than one JSON value")
	}
	after, _ := strconv.Atoi(a.Header.Get("Retry-After"))
	switch {
	case statuses()[p.Code] != a.Status:
		return p.Code, errors.New("not a status and code of the contract")
	case p.Error == "" || p.RequestID != ids[0]:
		return p.Code, errors.New("no sentence, or another request's ID")
	case (a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable) && (after < 1 || after != p.RetryAfter):
		return p.Code, errors.New("no Retry-After, or another than in the body")
	case a.Status == http.StatusTooManyRequests && (p.Message == "" || a.Header.Get("X-Ratelimit-Remaining") != "0"):
		return p.Code, errors.New("no message or no X-RateLimit-Remaining, which existing clients read")
	case a.Status == http.StatusMethodNotAllowed && a.Header.Get("Allow") == "":
		return p.Code, errors.New("no Allow")
	}
	return p.Code, nil
}

var errCrossTenant = errors.New("CROSS-TENANT RECORD")

// checkRecords returns what is wrong with the records of a success.
func checkRecords(a *gatewaytest.Response, business, requestID string) error {
	var body map[string]json.RawMessage
	if err := json.Unmarshal([]byte(a.Body), &body); err != nil {
		return fmt.Errorf("invalid JSON: %w", err)
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(a.Request.URL.Opaque, "/api/v1/"), "?")
	stamp := stampOf(business, requestID)
	switch name {
	case "status":
		if string(body["status"]) != `"ok"` {
			return errors.New("not the resource that was requested")
		}
		return nil
	case "me", "business":
		var record struct{ ID, Name string }
		if err := json.Unmarshal(body["business"], &record); err != nil {
			return fmt.Errorf("not the resource that was requested: %w", err)
		}
		if record.ID != business || name == "business" && record.Name != stamp {
			return errCrossTenant
		}
		return nil
	}
	var records []map[string]any
	if err := json.Unmarshal(body[name], &records); err != nil {
		return fmt.Errorf("not the resource that was requested: %w", err)
	}
	if len(records) != 2 {
		return fmt.Errorf("%d records, want 2", len(records))
	}
	for _, r := range records {
		if r[stampField(name)] != stamp {
			return errCrossTenant
		}
	}
	return nil
}
