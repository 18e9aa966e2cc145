package style

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

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

// Accent is the colour of links and buttons, in light and dark mode.
type Accent struct{ light, dark rgb }

// NewAccent returns the accent of the options accent_color and accent_color_dark, whose contrast with the background must be at least 4.5:1.
// Defaults: the style sheet's own, and in dark mode the other one, mixed with as much white as the contrast requires.
func NewAccent(light, dark string) (a Accent, err error) {
	if light == "" {
		light, dark = "#0b5f5c", cmp.Or(dark, "#63cfc6")
	}
	if a.light, err = parseAccent("accent_color", light, lightGround, "darker"); err != nil {
		return a, err
	}
	if dark != "" {
		a.dark, err = parseAccent("accent_color_dark", dark, darkGround, "lighter")
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

// CSS returns the rules that replace the style sheet's own accent.
func (a Accent) CSS() string {
	const rule = ":root { --brand: %s; --brand-deep: %s; --tint: %s; --on-tint: var(--ink); }"
	return fmt.Sprintf("\n"+rule+"\n@media (prefers-color-scheme: dark) {\n\t"+rule+"\n}\n",
		a.light, a.light.mix(black, 0.25), white.mix(a.light, 0.12),
		a.dark, a.dark.mix(white, 0.3), darkGround.mix(a.dark, 0.2))
}

const iconSVG = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><style>rect{fill:%s}text{fill:#fff;font:700 18px sans-serif;` +
	`text-anchor:middle}@media (prefers-color-scheme:dark){rect{fill:%s}text{fill:#05211f}}</style><rect width="32" height="32" rx="8"/>` +
	`<text x="16" y="22.5">%s</text></svg>`

// Icon returns an icon in SVG, with a letter.
func (a Accent) Icon(letter string) string {
	return fmt.Sprintf(iconSVG, a.light, a.dark, html.EscapeString(letter))
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
