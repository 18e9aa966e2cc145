package oauth

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	maxRedirectURI  = 1024 // characters
	maxRedirectURIs = 16   // of a client
)

// checkClientScheme refuses schemes that browsers, office suites and operating systems handle themselves.
func checkClientScheme(scheme string) error {
	if len(scheme) < 3 || scheme[0] < 'a' || scheme[0] > 'z' ||
		strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != "" {
		return fmt.Errorf("invalid client scheme %q: must be lower case without a colon, such as cursor", scheme)
	}
	for _, prefix := range []string{
		"android", "chrome", "edge", "ext+", "facetime", "file", "itms", "microsoft-", "moz-", "ms-", "safari-", "search", "view-",
		"web+", "x-",
	} {
		if strings.HasPrefix(scheme, prefix) {
			return fmt.Errorf("invalid client scheme %q: schemes that begin with %s belong to browsers or operating systems",
				scheme, prefix)
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
	for _, label := range labels {
		if label == "" || label[0] == '-' || strings.HasSuffix(label, "-") || strings.Contains(label, "+") {
			return false
		}
	}
	return len(labels) > 1 && len(labels[0]) > 1 && strings.Trim(labels[0], "abcdefghijklmnopqrstuvwxyz") == ""
}

// redirectURI parses a redirect URI and checks that its scheme is allowed.
func (s *Server) redirectURI(raw string) (redirectURI, error) {
	u, err := parseRedirectURI(raw)
	if err != nil {
		return redirectURI{}, err
	}
	if u.scheme != "https" && u.loopback == "" && !reverseDomain(u.scheme) && !slices.Contains(s.o.ClientSchemes, u.scheme) {
		return redirectURI{}, fmt.Errorf("the scheme %s is not allowed", u.scheme)
	}
	return u, nil
}

// redirectURI is a parsed redirect URI. Its parts are as written.
type redirectURI struct {
	scheme string
	host   string // with the port: "example.com:8443"; may be "" for a private-use scheme
	// Of a loopback URI: the host without its port, and what follows the port.
	loopback, rest string
}

// local reports whether the URI leads to the person's own machine.
func (u redirectURI) local() bool { return u.scheme != "https" }

// display returns Request.RedirectHost.
func (u redirectURI) display() string {
	if u.scheme == "https" || u.loopback != "" {
		return u.host
	}
	return u.scheme + ":"
}

// parseRedirectURI parses a redirect URI. It refuses valid URIs that browsers and net/url could read differently.
func parseRedirectURI(raw string) (redirectURI, error) {
	if raw == "" {
		return redirectURI{}, errors.New("it is empty")
	}
	if len(raw) > maxRedirectURI {
		return redirectURI{}, fmt.Errorf("it is longer than %d characters", maxRedirectURI)
	}
	for i := range len(raw) {
		// RFC 3986
		if c := raw[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			return redirectURI{}, errors.New("it contains a character that is not allowed in a URI")
		}
	}
	if strings.Contains(raw, "#") {
		return redirectURI{}, errors.New("it has a fragment")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return redirectURI{}, errors.New("it is not a valid URI")
	}
	for _, name := range []string{"code", "state", "iss", "error", "error_description", "error_uri"} {
		if u.Query().Has(name) {
			return redirectURI{}, errors.New("its query contains a parameter of the response")
		}
	}
	scheme, after, _ := strings.Cut(raw, ":")
	switch {
	case u.Scheme == "":
		return redirectURI{}, errors.New("it is not absolute")
	case u.Scheme != scheme:
		return redirectURI{}, errors.New("its scheme is not in lower case")
	case u.User != nil:
		return redirectURI{}, errors.New("it contains user information")
	case scheme != "https" && scheme != "http":
		if after == "" || strings.Contains(u.Host, "@") {
			return redirectURI{}, errors.New("it is empty after the scheme, or its host contains @")
		}
		return redirectURI{scheme: scheme, host: u.Host}, nil
	}
	authority, ok := strings.CutPrefix(after, "//")
	if !ok {
		return redirectURI{}, errors.New("it has no host")
	}
	rest := ""
	if i := strings.IndexAny(authority, "/?"); i >= 0 {
		authority, rest = authority[:i], authority[i:]
	}
	host, err := checkAuthority(authority)
	if err != nil {
		return redirectURI{}, err
	}
	parsed := redirectURI{scheme: scheme, host: authority}
	if scheme == "http" {
		if host != "localhost" && host != "127.0.0.1" && host != "[::1]" {
			return redirectURI{}, errors.New("http is for localhost, 127.0.0.1 and [::1] only: use https")
		}
		parsed.loopback, parsed.rest = host, rest
	}
	return parsed, nil
}

// checkAuthority returns the host of an authority with an optional port. The host must consist of letters, digits, dots,
// hyphens and underscores or be an IPv6 address in brackets.
func checkAuthority(authority string) (host string, err error) {
	host = authority
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !strings.HasSuffix(authority, "]") {
		host = authority[:i]
		if n, err := strconv.ParseUint(authority[i+1:], 10, 16); err != nil || n == 0 {
			return "", errors.New("its port is invalid: must be from 1 to 65535")
		}
	}
	name := host
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		name = host[1 : len(host)-1]
		if name == "" || strings.Trim(name, "0123456789abcdef:.") != "" {
			return "", errors.New("its host is not a valid IPv6 address")
		}
		return host, nil
	}
	if name == "" || name[0] == '.' || strings.Contains(name, "..") ||
		strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
		return "", errors.New("its host is not a plain host name")
	}
	return host, nil
}

// matchRedirect reports whether requested equals one of the registered URIs byte for byte, except for the port of http on a
// loopback name or address (RFC 8252, section 7.3).
func matchRedirect(registered []string, requested string) bool {
	want, err := parseRedirectURI(requested)
	if err != nil {
		return false
	}
	for _, raw := range registered {
		if raw == requested {
			return true
		}
		if want.loopback == "" {
			continue
		}
		have, err := parseRedirectURI(raw)
		if err == nil && have.loopback == want.loopback && have.rest == want.rest {
			return true
		}
	}
	return false
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
