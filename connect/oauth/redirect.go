package oauth

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const maxRedirectURIs = 16 // per client

// checkClientScheme rejects invalid schemes and those that browsers, office suites and operating systems handle themselves.
func checkClientScheme(scheme string) error {
	if len(scheme) < 3 || scheme[0] < 'a' || scheme[0] > 'z' || strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != "" {
		return fmt.Errorf("invalid client scheme %q: must be lower case without a colon, such as cursor", scheme)
	}
	for _, prefix := range []string{
		"android", "chrome", "edge", "ext+", "facetime", "file", "itms", "microsoft-", "moz-", "ms-", "safari-", "search", "view-",
		"web+", "x-", "com.android.", "com.apple.", "com.google.android.", "microsoft.",
	} {
		if strings.HasPrefix(scheme, prefix) {
			return fmt.Errorf("invalid client scheme %q: schemes that begin with %s belong to browsers or operating systems", scheme, prefix)
		}
	}
	switch scheme {
	case "http", "https", "javascript", "data", "vbscript", "livescript", "mocha", "blob", "about", "brave", "opera", "vivaldi",
		"resource", "jar", "wyciwyg", "intent", "content", "ws", "wss", "ftp", "ftps", "sftp", "ssh", "telnet", "gopher", "ldap",
		"ldaps", "nfs", "smb", "cifs", "afp", "vnc", "rdp", "rtsp", "git", "svn", "mailto", "tel", "telprompt", "sms", "smsto", "mms",
		"sip", "sips", "callto", "geo", "maps", "market", "webcal", "xmpp", "matrix", "bitcoin", "openpgp4fpr", "wtai", "urn", "cid",
		"mid", "news", "nntp", "irc", "ircs", "magnet", "feed", "shell", "help", "hcp", "mk", "res", "its", "applescript", "shortcuts",
		"prefs", "app-prefs", "message", "onenote", "outlook", "launchpad", "steam", "bingmaps", "windowsdefender":
		return fmt.Errorf("invalid client scheme %q: browsers or operating systems act on it", scheme)
	}
	return nil
}

// reverseDomain reports whether a scheme is a reverse domain name (RFC 8252, section 7.1): at least two labels, the first a
// top-level domain.
func reverseDomain(scheme string) bool {
	labels := strings.Split(scheme, ".")
	invalid := func(label string) bool {
		return label == "" || label[0] == '-' || strings.HasSuffix(label, "-") || strings.Contains(label, "+")
	}
	return len(labels) > 1 && !slices.ContainsFunc(labels, invalid) && len(labels[0]) > 1 && strings.Trim(labels[0], "abcdefghijklmnopqrstuvwxyz") == ""
}

// redirectURI parses a redirect URI and checks that its scheme is allowed.
func (s *Server) redirectURI(raw string) (redirectURI, error) {
	u, err := parseRedirectURI(raw)
	if err != nil {
		return redirectURI{}, err
	}
	allowed := (reverseDomain(u.scheme) || slices.Contains(s.o.ClientSchemes, u.scheme)) && checkClientScheme(u.scheme) == nil
	if u.scheme != "https" && u.loopback == "" && !allowed {
		return redirectURI{}, fmt.Errorf("scheme %s is not allowed", u.scheme)
	}
	return u, nil
}

// redirectURI is a parsed redirect URI. Its parts are not normalised.
type redirectURI struct {
	scheme string
	host   string // with the port: "example.com:8443"; may be "" for a private-use scheme
	// Only of a loopback URI: the host without the port, and what follows the port.
	loopback, rest string
}

// local reports whether the URI leads to the user's own machine: a loopback name or address, also with https, or an application.
func (u redirectURI) local() bool {
	host := strings.ToLower((&url.URL{Host: u.host}).Hostname())
	return u.scheme != "https" || isLoopbackName(strings.TrimSuffix(host, "."))
}

// display returns what Request.RedirectHost holds.
func (u redirectURI) display() string {
	if u.scheme == "https" || u.loopback != "" {
		return u.host
	}
	return u.scheme + ":"
}

// parseRedirectURI parses a redirect URI. It does not check whether a private-use scheme is allowed.
func parseRedirectURI(raw string) (redirectURI, error) {
	u, err := parseURI(raw)
	if err != nil {
		return redirectURI{}, err
	}
	if slices.ContainsFunc([]string{"code", "state", "iss", "error", "error_description", "error_uri"}, u.Query().Has) {
		return redirectURI{}, errors.New("query must not contain a response parameter such as code or state")
	}
	parsed := redirectURI{scheme: u.Scheme, host: u.Host}
	if u.Scheme != "https" && u.Scheme != "http" {
		if raw == u.Scheme+":" || strings.Contains(u.Host, "@") {
			return redirectURI{}, errors.New("must not end after the scheme or contain @ in the host")
		}
		return parsed, nil
	}
	host, rest, err := cutHost(raw, u)
	if err != nil {
		return redirectURI{}, err
	}
	if u.Scheme == "http" {
		if host != "localhost" && host != "127.0.0.1" && host != "[::1]" {
			return redirectURI{}, errors.New("http is only allowed for localhost, 127.0.0.1 and [::1]: use https")
		}
		parsed.loopback, parsed.rest = host, rest
	}
	return parsed, nil
}

// parseURI parses an absolute URI without a fragment. It rejects URIs that browsers and net/url could parse differently.
func parseURI(raw string) (*url.URL, error) {
	notAllowed := func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"<>\\^`{|}", r) } // RFC 3986
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return nil, errors.New("must not be empty")
	case len(raw) > maxURI:
		return nil, fmt.Errorf("must be at most %d characters", maxURI)
	case strings.ContainsFunc(raw, notAllowed):
		return nil, errors.New("must contain only characters that are allowed in a URI")
	case strings.Contains(raw, "#"):
		return nil, errors.New("must not contain a fragment")
	case err != nil:
		return nil, errors.New("must be a valid URI")
	case u.Scheme == "":
		return nil, errors.New("must be an absolute URI")
	case !strings.HasPrefix(raw, u.Scheme+":"):
		return nil, errors.New("scheme must be in lower case")
	case u.User != nil:
		return nil, errors.New("must not contain user information")
	}
	return u, nil
}

// cutHost returns the host of an http or https URI without the port, and what follows both. The host must be an IPv6 address in
// brackets, or letters, digits, dots, hyphens and underscores within DNS's length limits, because pages show all of it.
func cutHost(raw string, u *url.URL) (host, rest string, err error) {
	rest, ok := strings.CutPrefix(raw, u.Scheme+"://"+u.Host)
	if !ok || u.Host == "" {
		return "", "", errors.New("must have a host without percent-encoding")
	}
	host = u.Host
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		if n, err := strconv.ParseUint(host[i+1:], 10, 16); err != nil || n == 0 {
			return "", "", errors.New("port must be from 1 to 65535")
		}
		host = host[:i]
	}
	if name, ok := strings.CutPrefix(host, "["); ok {
		if name = strings.TrimSuffix(name, "]"); name == "" || strings.Trim(name, "0123456789abcdef:.") != "" {
			return "", "", errors.New("host must be a valid IPv6 address")
		}
		return host, rest, nil
	}
	labels := strings.Split(strings.ToLower(strings.TrimSuffix(host, ".")), ".")
	last, isHex := strings.CutPrefix(labels[len(labels)-1], "0x") // of a number, browsers make an IPv4 address: 127.1 is 127.0.0.1
	isNumber := strings.Trim(last, "0123456789") == "" || isHex && strings.Trim(last, "0123456789abcdef") == ""
	_, notAddress := netip.ParseAddr(strings.Join(labels, "."))
	invalid := func(label string) bool {
		return label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != ""
	}
	if len(host) > 253 || slices.ContainsFunc(labels, invalid) || isNumber && notAddress != nil {
		return "", "", errors.New("host must be a plain host name of at most 253 characters, and 63 in each label, or an IPv4 address with four numbers")
	}
	return host, rest, nil
}

// matchRedirect reports whether requested equals one of the registered URIs byte for byte, except for the port of http on a
// loopback name or address (RFC 8252, section 7.3).
func matchRedirect(registered []string, requested string) bool {
	want, err := parseRedirectURI(requested)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(registered, func(raw string) bool {
		have, err := parseRedirectURI(raw)
		return raw == requested || err == nil && want.loopback != "" && have.loopback == want.loopback && have.rest == want.rest
	})
}

// withParameters adds parameters to the query of a redirect URI.
func withParameters(uri string, parameters url.Values) string {
	separator := "?"
	if strings.Contains(uri, "?") {
		separator = "&"
		if strings.HasSuffix(uri, "?") || strings.HasSuffix(uri, "&") {
			separator = ""
		}
	}
	return uri + separator + parameters.Encode()
}
