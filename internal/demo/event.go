package demo

// The states of an event. Only published ones are for the public.
const (
	eventDraft     = "draft"
	eventPublished = "published"
	eventArchived  = "archived"
)

type event struct {
	ID           string
	BusinessID   string
	Status       string
	Title        string
	Description  *string
	URL          string
	Type         string // "single-day", "multi-day" or "recurring"
	Schedule     []session
	LocationType string  // "in-person", "virtual" or "hybrid"
	Venue        *string // nil for a virtual one, like the address
	Address      *string
	VirtualLink  *string // nil for one in person
	IsFree       bool
	ImageURL     *string
	Media        []medium
	PublishedAt  *string // nil for what never was published
	CreatedAt    string
	UpdatedAt    string
}

// session is one sitting of an event, on the clocks of the business.
type session struct {
	EventID   string
	Position  int64
	Date      string
	StartTime string
	EndTime   string
}

// medium is one picture, film or document of an event.
type medium struct {
	EventID  string
	Position int64
	URL      string
	FileType string // "image", "video" or "document"
	Caption  *string
	Featured bool
}

func eventFields() []field[event] {
	type r = event
	return []field[r]{
		text("id", func(r *r) *string { return &r.ID }),
		text("business_id", func(r *r) *string { return &r.BusinessID }),
		text("status", func(r *r) *string { return &r.Status }),
		text("title", func(r *r) *string { return &r.Title }),
		optText("description", func(r *r) **string { return &r.Description }),
		text("url", func(r *r) *string { return &r.URL }),
		text("type", func(r *r) *string { return &r.Type }),
		text("location_type", func(r *r) *string { return &r.LocationType }),
		optText("venue", func(r *r) **string { return &r.Venue }),
		optText("address", func(r *r) **string { return &r.Address }),
		optText("virtual_link", func(r *r) **string { return &r.VirtualLink }),
		boolean("is_free", func(r *r) *bool { return &r.IsFree }),
		optText("image_url", func(r *r) **string { return &r.ImageURL }),
		optText("published_at", func(r *r) **string { return &r.PublishedAt }),
		text("created_at", func(r *r) *string { return &r.CreatedAt }),
		internal(text("updated_at", func(r *r) *string { return &r.UpdatedAt })),
	}
}

func sessionFields() []field[session] {
	type r = session
	return []field[r]{
		internal(text("event_id", func(r *r) *string { return &r.EventID })),
		internal(integer("position", func(r *r) *int64 { return &r.Position })),
		text("date", func(r *r) *string { return &r.Date }),
		text("start_time", func(r *r) *string { return &r.StartTime }),
		text("end_time", func(r *r) *string { return &r.EndTime }),
	}
}

func mediumFields() []field[medium] {
	type r = medium
	return []field[r]{
		internal(text("event_id", func(r *r) *string { return &r.EventID })),
		internal(integer("position", func(r *r) *int64 { return &r.Position })),
		text("url", func(r *r) *string { return &r.URL }),
		text("file_type", func(r *r) *string { return &r.FileType }),
		optText("caption", func(r *r) **string { return &r.Caption }),
		boolean("featured", func(r *r) *bool { return &r.Featured }),
	}
}

// eventJSON appends an event with what belongs to it.
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
