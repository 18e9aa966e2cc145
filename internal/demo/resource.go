package demo

type contact struct {
	ID           int64   `db:"id"`
	BusinessID   string  `db:"business_id"`
	FirstName    string  `db:"first_name"`
	LastName     *string `db:"last_name"`
	Email        *string `db:"email"`
	PhoneNumber  *string `db:"phone_number"` // national significant number, digits only
	CountryCode  *string `db:"country_code"` // calling code with its plus sign; with a number only
	Type         string  `db:"contact_type"`
	Status       string  `db:"contact_status"`
	Notes        *string `db:"notes"`
	DateCreated  string  `db:"date_created"`
	DateModified string  `db:"date_modified"`
}

type job struct {
	ID                 string  `db:"id"`
	BusinessID         string  `db:"business_id"`
	ContactID          int64   `db:"contact_id" json:"-"`
	Number             string  `db:"job_number"`
	Name               string  `db:"name"`
	Description        *string `db:"description"`
	Status             string  `db:"work_status"`
	TotalAmount        decimal `db:"total_amount"`
	OutstandingBalance decimal `db:"outstanding_balance"` // nothing is outstanding of a cancelled job
	LeadSource         *string `db:"lead_source"`
	CreatedAt          string  `db:"created_at"`
	UpdatedAt          string  `db:"updated_at"`
}

// price is the sum of an estimate or invoice: subtotal - discount + tax = total. Tax is a percentage of what remains
// after the discount.
type price struct {
	Subtotal       decimal  `db:"subtotal"`
	DiscountType   *string  `db:"discount_type"` // "percentage" of the subtotal, or "fixed"
	DiscountValue  *decimal `db:"discount_value"`
	DiscountAmount decimal  `db:"discount_amount" json:"-"`
	TaxRate        decimal  `db:"tax_rate"` // percent
	TaxAmount      decimal  `db:"tax_amount"`
	Total          decimal  `db:"total_amount"`
}

type estimate struct {
	ID            string  `db:"id"`
	BusinessID    string  `db:"business_id"`
	ContactID     int64   `db:"contact_id" json:"-"`
	JobID         *string `db:"job_id" json:"-"` // the job it became
	Number        string  `db:"estimate_number"`
	Title         string  `db:"title"`
	Status        string  `db:"status"`
	PaymentStatus string  `db:"payment_status"`
	price
	DepositRequired bool     `db:"deposit_required"`
	DepositAmount   *decimal `db:"deposit_amount"` // nil without a required deposit
	AmountPaid      decimal  `db:"amount_paid"`
	ExpiresAt       *string  `db:"expires_at"`
	SentAt          *string  `db:"sent_at"`
	ApprovedAt      *string  `db:"approved_at"`
	CreatedAt       string   `db:"created_at"`
	UpdatedAt       string   `db:"updated_at"`
}

type invoice struct {
	ID         string  `db:"id"`
	BusinessID string  `db:"business_id"`
	ContactID  int64   `db:"contact_id" json:"-"`
	JobID      *string `db:"job_id" json:"-"`
	Number     string  `db:"invoice_number"`
	Title      string  `db:"title"`
	Status     string  `db:"status"`
	price
	PaidAmount decimal `db:"paid_amount"`
	DueAt      *string `db:"due_at"`
	IssuedAt   *string `db:"issued_at"`
	SentAt     *string `db:"sent_at"`
	PaidAt     *string `db:"paid_at"` // when it was paid in full
	CreatedAt  string  `db:"created_at"`
	UpdatedAt  string  `db:"updated_at"`
}

type offering struct {
	ID                  string  `db:"id"`
	BusinessID          string  `db:"business_id"`
	Name                string  `db:"name"`
	Type                string  `db:"type"`
	Status              string  `db:"status"`
	Description         *string `db:"description"`
	ServiceDetails      string  `db:"service_details,json"` // a JSON array of strings
	DontBookAppointment bool    `db:"dont_book_appointment"`
	AppointmentDuration *int64  `db:"appointment_duration"` // minutes; nil where nothing is booked
	CreatedAt           string  `db:"created_at"`
	UpdatedAt           string  `db:"updated_at"`
}

type equipment struct {
	ID                      string  `db:"id"`
	BusinessID              string  `db:"business_id"`
	Number                  string  `db:"equipment_number"`
	Name                    string  `db:"name"`
	SerialNumber            *string `db:"serial_number"`
	TrackingMode            string  `db:"tracking_mode"` // "individual": one piece with a serial number; "bulk": a quantity
	Quantity                int64   `db:"quantity"`
	Category                string  `db:"category"`
	Model                   *string `db:"model"`
	Manufacturer            *string `db:"manufacturer"`
	Status                  string  `db:"status"`
	PurchaseDate            *string `db:"purchase_date"`
	MaintenanceIntervalDays *int64  `db:"maintenance_interval_days"` // nil: not maintained by the calendar
	NextMaintenanceDate     *string `db:"next_maintenance_date"`
	CreatedAt               string  `db:"created_at"`
	UpdatedAt               string  `db:"updated_at"`
}

// The states of an event. The public API serves published ones only.
const (
	eventDraft     = "draft"
	eventPublished = "published"
	eventArchived  = "archived"
)

type event struct {
	ID           string  `db:"id"`
	BusinessID   string  `db:"business_id"`
	Status       string  `db:"status"`
	Title        string  `db:"title"`
	Description  *string `db:"description"`
	URL          string  `db:"url"`
	Type         string  `db:"type"` // "single-day", "multi-day" or "recurring"
	Schedule     []session
	LocationType string  `db:"location_type"` // "in-person", "virtual" or "hybrid"
	Venue        *string `db:"venue"`         // nil for a virtual one, like the address
	Address      *string `db:"address"`
	VirtualLink  *string `db:"virtual_link"` // nil for one in person
	IsFree       bool    `db:"is_free"`
	ImageURL     *string `db:"image_url"`
	Media        []medium
	PublishedAt  *string `db:"published_at"` // nil for what never was published
	CreatedAt    string  `db:"created_at"`
	UpdatedAt    string  `db:"updated_at" json:"-"`
}

// session is one session of an event, in the business's time zone.
type session struct {
	EventID   string `db:"event_id" json:"-"`
	Position  int64  `db:"position" json:"-"`
	Date      string `db:"date"`
	StartTime string `db:"start_time"`
	EndTime   string `db:"end_time"`
}

// medium is a picture, video or document of an event.
type medium struct {
	EventID  string  `db:"event_id" json:"-"`
	Position int64   `db:"position" json:"-"`
	URL      string  `db:"url"`
	FileType string  `db:"file_type"` // "image", "video" or "document"
	Caption  *string `db:"caption"`
	Featured bool    `db:"featured"`
}

// eventJSON appends an event with its sessions and media.
type eventJSON struct {
	event   []field[event]
	session []field[session]
	medium  []field[medium]
}

func (j *eventJSON) append(b []byte, e *event) []byte {
	b = appendRecord(b, j.event, e)
	b = append(b[:len(b)-1], `,"schedule":`...)
	b = appendList(b, j.session, e.Schedule)
	b = append(b, `,"media":`...)
	b = appendList(b, j.medium, e.Media)
	return append(b, '}')
}
