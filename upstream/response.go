package upstream

import (
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// CheckHeader checks the status and header of a data service's response, whose body must have been decoded. It returns the documented response.
// If that has a Body, the caller must call Check. Without one, a body is forwarded unchecked if its media type is one of Unchecked, and
// otherwise there must be no body.
//
//   - A documented status, except 401, 407 and 429: no error. A body with a schema needs Content-Type application/json, or a documented +json,
//     without a charset or with utf-8. ASP.NET and Spring send errors as application/problem+json, whatever they document.
//   - 304 without a body, if conditional says that the request had If-None-Match, and this header is documented: no error.
//   - 503 with a valid Retry-After: ErrUpstreamUnavailable.
//   - A documented 429, or another status from 402 to 499 if the operation has a path parameter or a body: *StatusError. Not if the
//     status is about the gateway's own request or connection: 407, 408, 421, 425, 426.
//   - Everything else: ErrContractViolation. The gateway sends only requests that the definition allows, so even a 404 is not the
//     caller's mistake.
//
// Errors other than *StatusError are *ContractError and contain nothing of the response except the status.
func (op *Operation) CheckHeader(status int, h http.Header, conditional bool) (*DocumentedResponse, error) {
	refuse := func(kind error, expected string) (*DocumentedResponse, error) {
		return nil, &ContractError{Kind: kind, Resource: op.Resource, Record: -1, Expected: expected}
	}
	res := op.response(status)
	_, saysWhen := RetryAfter(h, time.Time{}) // only the syntax matters here, not the current time
	switch {
	case status == http.StatusServiceUnavailable && saysWhen:
		return refuse(ErrUpstreamUnavailable, op.statuses()+", not 503 with Retry-After")
	case status == http.StatusUnauthorized:
		return refuse(ErrContractViolation, op.statuses()+", not 401: the data service rejects the gateway's assertion, or requires one, or a credential of its own (header_up)")
	case status == http.StatusNotModified && conditional && op.Method == http.MethodGet && op.Forwards("If-None-Match"):
		return &DocumentedResponse{Status: status, ETag: true}, nil
	case status == http.StatusTooManyRequests && res != nil:
		return nil, &StatusError{status}
	case res != nil && status != http.StatusProxyAuthRequired:
	case status >= 400 && status < 500 && (len(op.PathParams) > 0 || op.Body != nil) && !slices.Contains([]int{407, 408, 421, 425, 426}, status):
		return nil, &StatusError{status}
	default:
		return refuse(ErrContractViolation, op.statuses()+", not "+strconv.Itoa(status))
	}
	if status == http.StatusNoContent || status == http.StatusResetContent { // in a range of others
		own := *res
		own.Body, own.Unchecked = nil, nil
		res = &own
	}
	values := h["Content-Type"]
	switch {
	case len(values) == 1 && res.Body != nil && (isJSON(values[0], res.Media) || status >= 400 && isJSON(values[0], []string{"application/problem+json"}) || op.Mapping != nil && op.Mapping.treatsAsJSON(values[0])),
		res.Body == nil && res.Unchecked == nil:
		return res, nil
	case len(values) == 1 && res.passes(mediaType(values[0])):
		unchecked := *res
		unchecked.Body = nil
		return &unchecked, nil
	default:
		return refuse(ErrContractViolation, "Content-Type "+strings.Join(slices.Concat(res.Media, res.Unchecked), " or "))
	}
}

// passes reports whether a media type is one of r.Unchecked, or in a range such as image/*. JSON is in none: it is always checked.
func (r *DocumentedResponse) passes(media string) bool {
	return slices.ContainsFunc(r.Unchecked, func(documented string) bool {
		before, isRange := strings.CutSuffix(documented, "*")
		return media == documented || isRange && media != "" && !strings.HasSuffix(media, "json") && strings.HasPrefix(media, strings.TrimPrefix(before, "*/"))
	})
}

// response returns the documented response for a status, or nil.
func (op *Operation) response(status int) *DocumentedResponse {
	return find(op.Responses, func(r *DocumentedResponse) bool { return r.Status == status || r.Status == status/100 }) // ranges are last
}

// statuses lists the documented statuses, for errors.
func (op *Operation) statuses() string {
	all := make([]string, len(op.Responses))
	for i := range op.Responses {
		if all[i] = strconv.Itoa(op.Responses[i].Status); op.Responses[i].Status < 10 {
			all[i] += "xx"
		}
	}
	return "status " + strings.Join(all, " or ")
}

// isJSON reports whether a Content-Type is JSON in UTF-8: application/json, or another one that is documented.
func isJSON(contentType string, documented []string) bool {
	if contentType == "application/json" {
		return true
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != "application/json" && !slices.Contains(documented, media) {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "utf8") // a common mistake; RFC 8259, section 11 has no charset
}

// MediaType returns the media type of a checked body for callers: the data service's if it is documented, otherwise the first one that is.
func (r *DocumentedResponse) MediaType(contentType string) string {
	if media := mediaType(contentType); slices.Contains(r.Media, media) {
		return media
	}
	return r.Media[0]
}

// mediaType returns the media type of a Content-Type without its parameters.
func mediaType(contentType string) string {
	if contentType == "application/json" {
		return contentType
	}
	media, _, _ := mime.ParseMediaType(contentType)
	return media
}

// The range to which RetryAfter clamps.
const (
	MinRetryAfter = time.Second
	MaxRetryAfter = time.Hour
)

// RetryAfter parses the header Retry-After, seconds or an HTTP date. It rounds up to whole seconds and clamps to the range
// MinRetryAfter to MaxRetryAfter. ok is false if there is not exactly one, or if it is invalid.
func RetryAfter(h http.Header, now time.Time) (d time.Duration, ok bool) {
	values := h["Retry-After"]
	if len(values) != 1 || len(values[0]) > 64 {
		return 0, false
	}
	if isDigits(values[0]) {
		seconds, err := strconv.ParseUint(values[0], 10, 32)
		if err != nil {
			return MaxRetryAfter, true // too large for 32 bits
		}
		d = time.Duration(seconds) * time.Second
	} else {
		at, err := http.ParseTime(values[0])
		if err != nil {
			return 0, false
		}
		d = at.Sub(now)
		if d > MaxRetryAfter {
			return MaxRetryAfter, true
		}
		d = (d + time.Second - 1).Truncate(time.Second)
	}
	return min(max(d, MinRetryAfter), MaxRetryAfter), true
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// ForwardHeaders copies the headers that callers may see from a data service's response, src, to dst: Deprecation (RFC 9745) and
// Sunset (RFC 8594), if each is given once, is well formed and is not in dst already. Link is not copied, because it could
// contain an internal address.
func ForwardHeaders(dst, src http.Header) {
	forward := func(name string, isValid func(string) bool) {
		if _, own := dst[name]; !own && len(src[name]) == 1 && isValid(src[name][0]) {
			dst[name] = src[name]
		}
	}
	forward("Deprecation", isDeprecation)
	forward("Sunset", func(s string) bool { _, err := http.ParseTime(s); return err == nil })
}

// isDeprecation reports whether s is a structured field date such as "@1688169599".
func isDeprecation(s string) bool {
	s, ok := strings.CutPrefix(s, "@")
	s = strings.TrimPrefix(s, "-")
	return ok && len(s) <= 15 && isDigits(s)
}

// DeprecationHeaders returns the headers of an operation that was deprecated, will be removed at sunset unless that is zero, and has a page
// about it unless link is empty: Deprecation (RFC 9745), Sunset (RFC 8594) and Link.
func DeprecationHeaders(since, sunset time.Time, link string) http.Header {
	h := http.Header{"Deprecation": {"@" + strconv.FormatInt(since.Unix(), 10)}}
	if !sunset.IsZero() {
		h["Sunset"] = []string{sunset.UTC().Format(http.TimeFormat)}
	}
	if link != "" {
		h["Link"] = []string{"<" + link + `>; rel="deprecation"; type="text/html"`}
	}
	return h
}

// Headers returns the values of ETag and Location for the caller, each empty if it is not documented or must not be forwarded. An entity tag must
// have the form of RFC 9110, section 8.8.3. A location must be a path, or a URL with one of hosts, by which the service was asked. It must match
// an operation of the API, or the path to which one is mapped for the business. It becomes the path for callers: below mounted, where the API
// is, and with the documented parameters of a GET.
func (r *DocumentedResponse) Headers(api *API, mounted, business string, h http.Header, hosts ...string) (etag, location string) {
	if values := h["Etag"]; r.ETag && len(values) == 1 && isETag(values[0]) {
		etag = values[0]
	}
	if values := h["Location"]; r.Location && len(values) == 1 && isPrintable(values[0], maxForwarded, false) {
		target := values[0]
		if u, err := url.Parse(target); err == nil && u.User == nil && hasHost(u, hosts) {
			target = u.RequestURI()
		}
		if strings.HasPrefix(target, "/") && !strings.HasPrefix(target, "//") {
			if own := api.callerPath(target, business, func() bool { return true }); own != "" {
				location = mounted + own
			}
		}
	}
	return etag, location
}

// hasHost reports whether u is an HTTP URL with one of hosts, in any case and with or without the default port (RFC 9110, section 4.2.3).
func hasHost(u *url.URL, hosts []string) bool {
	port, ok := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	host := strings.TrimSuffix(u.Host, port)
	return ok && host != "" && slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(strings.TrimSuffix(h, port), host) })
}

// isETag reports whether s is an entity tag (RFC 9110, section 8.8.3) of at most 256 bytes.
func isETag(s string) bool {
	s = strings.TrimPrefix(s, "W/")
	return len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' && strings.Count(s, `"`) == 2 && isVisibleASCII(s)
}

// Identity returns the response of an operation that the gateway answers from the credential. values are the members of its one object.
func (op *Operation) Identity(values map[string]string) []byte {
	outer := &op.response(http.StatusOK).Body.Properties[0]
	text := append([]byte("{"), outer.head[1:]...)
	for i := range outer.Schema.Properties {
		p := &outer.Schema.Properties[i]
		head := p.head
		if i == 0 {
			head = "{" + head[1:]
		}
		text, _ = jsontext.AppendQuote(append(text, head...), values[p.Name]) // values that are not UTF-8 are replaced
	}
	return append(text, "}}"...)
}
