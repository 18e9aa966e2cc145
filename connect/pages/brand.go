package pages

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"image/png"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/gatehouse-gateway/gatehouse/internal/cleantext"
	"github.com/gatehouse-gateway/gatehouse/internal/style"
)

// Brand is what every page shows of the platform, besides its name.
type Brand struct {
	// Logo is a file with the platform's symbol, which stands before the name: a PNG of at most 256 KiB, and 2048 by 2048 pixels.
	// Default: the first letter of the name.
	Logo string `json:"logo,omitempty"`

	// AccentColor is the colour of links and buttons, such as "#0b5f5c". Its contrast with the background must be at least
	// 4.5:1. Default: "#0b5f5c", and "#63cfc6" in dark mode.
	AccentColor string `json:"accent_color,omitempty"`

	// AccentColorDark is AccentColor for dark mode. Default: AccentColor, mixed with as much white as the contrast requires.
	AccentColorDark string `json:"accent_color_dark,omitempty"`

	// SupportURL is an https or mailto URL. Default: no link.
	SupportURL string `json:"support_url,omitempty"`

	// PrivacyURL and TermsURL are https URLs. Default: no links.
	PrivacyURL string `json:"privacy_url,omitempty"`
	TermsURL   string `json:"terms_url,omitempty"`
}

// Limits of a logo.
const (
	maxLogo     = 256 << 10 // bytes
	maxLogoSide = 2048      // pixels
)

// brand is a valid Brand, for the templates.
type brand struct {
	Name, Initial, Sheet, Icon, Logo string // Sheet, Icon and Logo are paths of assets; Logo may be ""
	Links                            []navItem
}

// newBrand checks a Brand and adds its assets.
func newBrand(name string, b Brand, addAsset func(name, content string) (path string)) (*brand, error) {
	if name == "" || cleantext.Line(name, maxLabel) != name {
		return nil, fmt.Errorf("invalid name %q: must be one line of 1 to %d visible characters", name, maxLabel)
	}
	a, err := newAccent(b)
	if err != nil {
		return nil, err
	}
	v := &brand{Name: name, Initial: initial(name), Sheet: addAsset("pages.css", style.CSS+a.css())}
	if b.Logo != "" {
		content, err := readLogo(b.Logo)
		if err != nil {
			return nil, fmt.Errorf("invalid logo: %w", err)
		}
		v.Logo = addAsset("logo.png", content)
	}
	if v.Icon = v.Logo; v.Icon == "" {
		v.Icon = addAsset("icon.svg", fmt.Sprintf(iconSVG, a.light, a.dark, html.EscapeString(v.Initial)))
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

// iconSVG is the icon of a platform without a logo.
const iconSVG = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><style>rect{fill:%s}text{fill:#fff;font:700 18px sans-serif;` +
	`text-anchor:middle}@media (prefers-color-scheme:dark){rect{fill:%s}text{fill:#05211f}}</style><rect width="32" height="32" rx="8"/>` +
	`<text x="16" y="22.5">%s</text></svg>`

// readLogo returns the content of a file that is a whole PNG, whatever its name is.
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

// rgb is a colour, 0xrrggbb.
type rgb uint32

// Colours of the style sheet. The grounds are those on which the accent has the least contrast: of the page in light mode, of a
// card in dark mode.
const (
	black, white rgb = 0x000000, 0xffffff
	lightGround  rgb = 0xf3f5f6
	darkGround   rgb = 0x172027
)

// minContrast is WCAG's minimum for text (success criterion 1.4.3).
const minContrast = 4.5

// accent is the colour of links and buttons, in light and dark mode.
type accent struct{ light, dark rgb }

func newAccent(b Brand) (a accent, err error) {
	if b.AccentColor == "" {
		b.AccentColor, b.AccentColorDark = "#0b5f5c", cmp.Or(b.AccentColorDark, "#63cfc6")
	}
	if a.light, err = parseAccent("accent_color", b.AccentColor, lightGround, "darker"); err != nil {
		return a, err
	}
	if b.AccentColorDark != "" {
		a.dark, err = parseAccent("accent_color_dark", b.AccentColorDark, darkGround, "lighter")
		return a, err
	}
	for share := 0.0; a.dark.contrast(darkGround) < minContrast; share += 0.05 {
		a.dark = a.light.mix(white, share)
	}
	return a, nil
}

// parseAccent parses a colour, which must have enough contrast with the ground.
func parseAccent(option, s string, ground rgb, instead string) (rgb, error) {
	digits, ok := strings.CutPrefix(s, "#")
	n, err := strconv.ParseUint(digits, 16, 24)
	if !ok || err != nil || len(digits) != 6 {
		return 0, fmt.Errorf(`invalid %s %q: must be # and six hexadecimal digits, such as "#0b5f5c"`, option, s)
	}
	got := rgb(n).contrast(ground)
	if got < minContrast {
		return 0, fmt.Errorf("invalid %s %q: its contrast with the background %s is %.2f:1, but links and buttons need at least %.1f:1: use a %s colour",
			option, s, ground, math.Floor(got*100)/100, minContrast, instead)
	}
	return rgb(n), nil
}

// css returns the rules that replace the style sheet's own accent.
func (a accent) css() string {
	const rule = ":root { --brand: %s; --brand-deep: %s; --tint: %s; --on-tint: var(--ink); }"
	return fmt.Sprintf("\n"+rule+"\n@media (prefers-color-scheme: dark) {\n\t"+rule+"\n}\n",
		a.light, a.light.mix(black, 0.25), white.mix(a.light, 0.12),
		a.dark, a.dark.mix(white, 0.3), darkGround.mix(a.dark, 0.2))
}

func (c rgb) String() string { return fmt.Sprintf("#%06x", uint32(c)) }

// channels returns red, green and blue, from 0 to 1.
func (c rgb) channels() [3]float64 {
	return [...]float64{float64(c>>16) / 255, float64(c>>8&255) / 255, float64(c&255) / 255}
}

// mix returns c with a share of another colour.
func (c rgb) mix(other rgb, share float64) (mixed rgb) {
	others := other.channels()
	for i, v := range c.channels() {
		mixed = mixed<<8 | rgb(math.Round(255*(v*(1-share)+others[i]*share)))
	}
	return mixed
}

// contrast returns WCAG's contrast ratio of two colours, from 1 to 21.
func (c rgb) contrast(other rgb) float64 {
	a, b := c.luminance(), other.luminance()
	return (max(a, b) + 0.05) / (min(a, b) + 0.05)
}

// luminance returns WCAG's relative luminance.
func (c rgb) luminance() float64 {
	linear := c.channels()
	for i, v := range linear {
		if linear[i] = v / 12.92; v > 0.04045 {
			linear[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return 0.2126*linear[0] + 0.7152*linear[1] + 0.0722*linear[2]
}
