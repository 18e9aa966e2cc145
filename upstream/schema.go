package upstream

// maxMembers is the maximum number of members of an object: each has a bit in a uint64.
const maxMembers = 64

// MaxNumbers is the maximum number of members of an envelope.
const MaxNumbers = 8

// member is the schema of one member of an object.
type member struct {
	name     string
	path     string // for errors: "schedule.date"
	head     string // the JSON before the value: `,"date":`, or `{"date":` for the first member
	kind     Kind
	required bool
	nested   *schema // the objects' members, for KindObjects
}

// schema is the compiled schema of a record, or of the objects within a field. It is immutable.
type schema struct {
	members []member       // the documented members in their order, then the internal ones
	fields  int            // number of documented members
	index   map[string]int // into members, by name
	order   []int          // indexes of the members by which records are sorted
	tenant  int            // index of the tenant field, -1 if there is none
	visible int            // index of the internal member Visible, -1 if there is none
	id      int            // index of the member of KindBusiness, -1 if there is none
	guess   int            // offset of the objects' part of checker.guess
}

func compileSchema(r *Resource) *schema {
	p := compileFields("", r.Fields, r.Internal)
	p.tenant = p.index[r.Tenant]
	if r.Visible != "" {
		p.visible = p.index[r.Visible]
	}
	for _, name := range r.Order {
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

func compileFields(path string, fields, internal []Field) *schema {
	p := &schema{
		fields: len(fields), index: make(map[string]int, len(fields)+len(internal)),
		tenant: -1, visible: -1, id: -1,
	}
	for i, f := range append(append([]Field(nil), fields...), internal...) {
		m := member{name: f.Name, path: path + f.Name, head: `,"` + f.Name + `":`, kind: f.Kind, required: f.Required}
		if i == 0 {
			m.head = `{"` + f.Name + `":`
		}
		if f.Kind == KindObjects {
			m.nested = compileFields(path+f.Name+".", f.Fields, nil)
		}
		if f.Kind == KindBusiness {
			p.id = i
		}
		p.members = append(p.members, m)
		p.index[f.Name] = i
	}
	return p
}
