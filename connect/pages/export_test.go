package pages

var (
	Clean         = clean
	OwnPage       = ownPage
	AccountDigest = accountDigest
)

// MaxLabel is the longest name that a page shows, in characters.
const MaxLabel = maxLabel
