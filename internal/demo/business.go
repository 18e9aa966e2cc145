package demo

// The two states of a business account.
const (
	AccountActive   = "active"
	AccountInactive = "inactive"
)

// Business is an account of the platform: whose keys sign, and whose records
// the service holds.
type Business struct {
	ID            string // UUID
	Name          string
	Slug          string // unique, lower-case words joined by dashes
	Email         string // empty: none
	Phone         string // E.164; empty: none
	WebsiteURL    string // empty: none
	TimeZone      string // IANA name
	AccountStatus string // AccountActive or AccountInactive
}

// businessRow is a Business as the database keeps it.
type businessRow struct {
	ID            string
	Name          string
	Slug          string
	Email         *string
	Phone         *string
	WebsiteURL    *string
	TimeZone      string
	AccountStatus string
	CreatedAt     string
	UpdatedAt     string
}

func businessFields() []field[businessRow] {
	type r = businessRow
	return []field[r]{
		text("id", func(r *r) *string { return &r.ID }),
		text("name", func(r *r) *string { return &r.Name }),
		text("slug", func(r *r) *string { return &r.Slug }),
		optText("email", func(r *r) **string { return &r.Email }),
		optText("phone", func(r *r) **string { return &r.Phone }),
		optText("website_url", func(r *r) **string { return &r.WebsiteURL }),
		text("time_zone", func(r *r) *string { return &r.TimeZone }),
		text("account_status", func(r *r) *string { return &r.AccountStatus }),
		internal(text("created_at", func(r *r) *string { return &r.CreatedAt })),
		internal(text("updated_at", func(r *r) *string { return &r.UpdatedAt })),
	}
}

func (r *businessRow) business() Business {
	return Business{
		ID: r.ID, Name: r.Name, Slug: r.Slug,
		Email: orEmpty(r.Email), Phone: orEmpty(r.Phone), WebsiteURL: orEmpty(r.WebsiteURL),
		TimeZone: r.TimeZone, AccountStatus: r.AccountStatus,
	}
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
