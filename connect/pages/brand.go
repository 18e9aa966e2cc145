package pages

import (
	"bytes"
	"fmt"
	"image/png"
	"net/url"
	"os"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/internal/style"
)

// Brand is what every page shows of the platform, besides its name.
type Brand struct {
	// Logo is the path of a file with the platform's symbol, shown before the name: a PNG of at most 256 KiB and 2048 by 2048
	// pixels. Default: the first letter of the name.
	Logo string `json:"logo,omitempty"`

	// AccentColor is the colour of links and buttons, such as "#0b5f5c". Its contrast with the background must be at least
	// 4.5:1. Default: "#0b5f5c", and "#63cfc6" in dark mode.
	AccentColor string `json:"accent_color,omitempty"`

	// AccentColorDark is AccentColor for dark mode. Default: AccentColor, lightened as far as the contrast requires.
	AccentColorDark string `json:"accent_color_dark,omitempty"`

	SupportURL string `json:"support_url,omitempty"` // https or mailto. Default: no link
	PrivacyURL string `json:"privacy_url,omitempty"` // https. Default: no link
	TermsURL   string `json:"terms_url,omitempty"`   // https. Default: no link
}

// Limits of a logo.
const (
	maxLogo     = 256 << 10 // bytes
	maxLogoSide = 2048      // pixels
)

// brand is a checked Brand with its assets, for the templates.
type brand struct {
	Name, Initial, Sheet, Icon, Logo string // Sheet, Icon and Logo are paths of assets; Logo may be ""
	Links                            []navItem
}

// newBrand checks a Brand and adds its assets with addAsset.
func newBrand(name string, b Brand, addAsset func(name, content string) (path string)) (*brand, error) {
	if name == "" || cleantext.Line(name, maxLabel) != name {
		return nil, fmt.Errorf("invalid name %q: must be one line of 1 to %d visible characters", name, maxLabel)
	}
	accent, err := style.NewAccent(b.AccentColor, b.AccentColorDark)
	if err != nil {
		return nil, err
	}
	v := &brand{Name: name, Initial: initial(name), Sheet: addAsset("pages.css", style.CSS+accent.CSS())}
	if b.Logo != "" {
		content, err := readLogo(b.Logo)
		if err != nil {
			return nil, fmt.Errorf("invalid logo: %w", err)
		}
		v.Logo = addAsset("logo.png", content)
	}
	if v.Icon = v.Logo; v.Icon == "" {
		v.Icon = addAsset("icon.svg", accent.Icon(v.Initial))
	}
	for _, link := range []struct{ option, text, url, or string }{
		{"support_url", "Support", b.SupportURL, ", or mailto: with an email address"},
		{"privacy_url", "Privacy", b.PrivacyURL, ""},
		{"terms_url", "Terms", b.TermsURL, ""},
	} {
		u, err := url.Parse(link.url)
		switch {
		case link.url == "":
			continue
		case err == nil && u.Scheme == "https" && u.Hostname() != "" && u.User == nil:
		case err == nil && u.Scheme == "mailto" && strings.Contains(u.Opaque, "@") && link.or != "":
		default:
			return nil, fmt.Errorf("invalid %s %q: must be an https URL%s", link.option, link.url, link.or)
		}
		v.Links = append(v.Links, navItem{Text: link.text, URL: link.url})
	}
	return v, nil
}

// readLogo returns the content of a file, which must be a complete PNG.
func readLogo(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxLogo {
		return "", fmt.Errorf("%s must be a regular file of at most %d KiB", file, maxLogo>>10)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	size, err := png.DecodeConfig(bytes.NewReader(content))
	if err == nil && size.Width <= maxLogoSide && size.Height <= maxLogoSide {
		if _, err = png.Decode(bytes.NewReader(content)); err == nil {
			return string(content), nil
		}
	}
	return "", fmt.Errorf("%s must be a PNG of at most %d by %[2]d pixels", file, maxLogoSide)
}
