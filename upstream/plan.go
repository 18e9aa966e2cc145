package upstream

// maxMembers is the most members that one object of the tables has: a bit of a uint64 each.
const maxMembers = 64

// BusinessMark is the internal member by which every record of a data service names the business that it belongs to.
const BusinessMark = "business_id"

// Internal members of /events.
const (
	statusMark      = "status"
	publishedStatus = "published"
)

// member is what the checker needs to know of one member of an object.
type member struct {
	name     string
	path     string // for errors: "schedule.date"
	head     string // what stands before the value in the answer: `,"date":`, or `{"date":` for the first
	kind     Kind
	required bool
	nested   *plan // the objects' members, for KindObjects
}

// plan is a Resource's fields, or a field's, prepared for the checker. It does not change once it is made.
type plan struct {
	members []member       // the documented ones in their order, then the internal ones
	fields  int            // how many are documented
	index   map[string]int // into members, by name
	order   []int          // the members that records are ordered by
	mark    int            // the member business_id, -1 if objects have none
	status  int            // the internal member status, -1 if records have none
	id      int            // the member of KindBusiness, -1 if there is none
	guess   int            // where the checker's guesses for these objects begin
}

func newPlan(r *Resource) *plan {
	internal := make([]Field, 0, 1+len(r.internal))
	internal = append(internal, Field{Name: BusinessMark, Kind: KindKey})
	for _, name := range r.internal {
		kind := KindInstant
		if name == statusMark {
			kind = KindText
		}
		internal = append(internal, Field{Name: name, Kind: kind})
	}
	p := planOf("", r.Fields, internal)
	p.mark = p.index[BusinessMark]
	if len(r.internal) > 0 {
		p.status = p.index[statusMark]
	}
	for _, name := range r.order {
		p.order = append(p.order, p.index[name])
	}
	guess := len(p.members)
	for i := range p.members {
		if nested := p.members[i].nested; nested != nil {
			nested.guess = guess
			guess += len(nested.members)
		}
	}
	return p
}

func planOf(path string, fields, internal []Field) *plan {
	p := &plan{
		fields: len(fields), index: make(map[string]int, len(fields)+len(internal)),
		mark: -1, status: -1, id: -1,
	}
	for i, f := range append(append([]Field(nil), fields...), internal...) {
		m := member{name: f.Name, path: path + f.Name, head: `,"` + f.Name + `":`, kind: f.Kind, required: f.Required}
		if i == 0 {
			m.head = `{"` + f.Name + `":`
		}
		if f.Kind == KindObjects {
			m.nested = planOf(path+f.Name+".", f.Fields, nil)
		}
		if f.Kind == KindBusiness {
			p.id = i
		}
		p.members = append(p.members, m)
		p.index[f.Name] = i
	}
	return p
}

// paginationPlan is the object `pagination`. Its members are in the order of the constants below.
//
//nolint:gochecknoglobals // a read-only table, filled once when the program starts
var paginationPlan = func() *plan {
	p := planOf("pagination.", []Field{
		{Name: "current_page", Kind: KindInteger, Required: true},
		{Name: "per_page", Kind: KindInteger, Required: true},
		{Name: "total_items", Kind: KindInteger, Required: true},
		{Name: "total_pages", Kind: KindInteger, Required: true},
	}, nil)
	p.guess = 2 * maxMembers // behind those of any record
	return p
}()

const (
	currentPage = iota
	perPage
	totalItems
	totalPages
	numPagination
)
