package demo

// profile is what the made-up records of one business are drawn from.
// Everything in it is invented: telephone numbers are of the ranges that the
// numbering authorities keep for fiction, and mail addresses and hosts are
// under names reserved for examples.
type profile struct {
	business   Business
	random     uint64 // begins the business's own sequence of random numbers
	foundedAgo int    // days ago its records begin
	closedAgo  int    // days ago they end; 0 while the account is active

	firstNames []string
	lastNames  []string
	dialling   string // calling code
	phones     []phoneBlock

	customerNotes []string
	leadNotes     []string
	vendorNotes   []string
	vendorFirms   []vendorFirm
	leadSources   []string
	siteNotes     []string

	taxRate     decimal   // percent
	hourlyRates []decimal // of a working hour
	termDays    []int     // until an invoice is due
	depositFrom decimal   // the total from which on a deposit is asked for
	discounts   []decimal // fixed ones
	papers      paperNumbers

	works    []work
	services []catalogEntry
	products []catalogEntry
	kit      []kit
	topics   []topic
	venues   []venue
	platform string // where virtual events are held: a URL to which a code is added

	contacts, estimates, directJobs, events int // how many
}

// phoneBlock is count numbers from prefix+from on, the rest padded to digits.
type phoneBlock struct {
	prefix              string
	from, count, digits int
}

// vendorFirm is a firm that people of the vendors work for.
type vendorFirm struct{ name, host, trade string }

// paperNumbers says how a business writes the numbers of its papers, each with
// one verb for an integer, and where it began to count.
type paperNumbers struct {
	job, estimate, invoice, equipment string
	first                             int
}

// work is a kind of job.
type work struct {
	title       string
	description string
	quarters    span // of an hour
	material    span // whole units of money
	months      span // when it is done, may pass the end of the year; zero: always
	days        int  // that it takes
	order       order
}

// order is how a kind of work comes to be ordered.
type order int

const (
	byQuote order = iota // with an estimate, or without
	routine              // without one
	callOut              // without one, and done within hours
)

// span is a range of integers, both ends included.
type span struct{ from, to int }

// has says whether a month lies in a span that may pass the end of the year.
func (s span) has(month int) bool {
	switch {
	case s == span{}:
		return true
	case s.from <= s.to:
		return s.from <= month && month <= s.to
	default:
		return month >= s.from || month <= s.to
	}
}

// catalogEntry is one offering, or one for each variant.
type catalogEntry struct {
	name        string // with one %s if there are variants
	description string
	details     []string
	minutes     int // of an appointment; 0: none is booked
	variants    []variant
}

type variant struct {
	name    string
	minutes int // 0: the entry's
}

// kit is a kind of equipment: so many pieces, or so many lots of a quantity each.
type kit struct {
	name, category, maker, model string
	serial                       string // begins the serial numbers; empty: kept in bulk
	units                        int
	quantity                     span // of a lot in bulk
	interval                     int  // days between maintenances; 0: none
}

// topic is a kind of event.
type topic struct {
	title       string
	description string
	sittings    []sitting
	location    string // "in-person", "virtual" or "hybrid"
	free        bool
	months      span
	pictures    []string // captions
	handout     string   // caption of a document; empty: none
}

// sitting is one session of a topic, so many days after the first.
type sitting struct {
	after      int
	start, end string
}

type venue struct{ name, address string }
