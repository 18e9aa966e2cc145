package pages

import "github.com/gatehouse-gateway/gatehouse/internal/style"

var (
	NewToken      = newToken
	OwnPage       = ownPage
	AccountDigest = accountDigest
)

// AccentCSS returns the style sheet with a brand's accent.
func AccentCSS(b Brand) (string, error) {
	a, err := style.NewAccent(b.AccentColor, b.AccentColorDark)
	return style.CSS + a.CSS(), err
}
