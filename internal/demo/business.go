package demo

// The two states of a business account.
const (
	AccountActive   = "active"
	AccountInactive = "inactive"
)

// Business is an account of the platform: whose keys sign, and whose records
// the service holds.
type Business struct {
	ID            string `json:"id"` // UUID
	Name          string `json:"name"`
	Slug          string `json:"slug"`           // unique, lower-case words joined by dashes
	Email         string `json:"email"`          // empty: none
	Phone         string `json:"phone"`          // E.164; empty: none
	WebsiteURL    string `json:"website_url"`    // empty: none
	TimeZone      string `json:"time_zone"`      // IANA name
	AccountStatus string `json:"account_status"` // AccountActive or AccountInactive
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
