package pages

var (
	OwnPage       = ownPage
	AccountDigest = accountDigest
)
