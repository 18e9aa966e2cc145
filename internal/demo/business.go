package demo

// The two states of a business account.
const (
	AccountActive   = "active"
	AccountInactive = "inactive"
)

// Business is a customer of the platform. Keys, accounts and records belong to one.
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

// businessRow is a row of businesses.
type businessRow struct {
	ID            string  `db:"id"`
	Name          string  `db:"name"`
	Slug          string  `db:"slug"`
	Email         *string `db:"email"`
	Phone         *string `db:"phone"`
	WebsiteURL    *string `db:"website_url"`
	TimeZone      string  `db:"time_zone"`
	AccountStatus string  `db:"account_status"`
	CreatedAt     string  `db:"created_at" json:"-"`
	UpdatedAt     string  `db:"updated_at" json:"-"`
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
