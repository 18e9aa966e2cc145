package upstream

import "slices"

// This file checks that an object belongs to the authenticated business and that it may be seen.

// owner returns the fault of an object that does not name the authenticated business as its tenant. It updates the report.
func (k *checker) owner(s *Schema, spans []span) fault {
	if tenant := spans[s.tenant]; !k.isNull(tenant) || s.TenantIsField {
		f := k.sameBusiness(s, tenant, s.Tenant)
		if f.schema == nil && s.also >= 0 && !k.isNull(spans[s.also]) {
			f = k.sameBusiness(s, spans[s.also], s.AlsoTenant)
		}
		return f
	}
	k.report.MissingTenant++
	if k.contract.AllowMissingTenant {
		return fault{}
	}
	return fault{schema: s, path: s.Tenant, kind: ErrMissingTenant, why: "the ID of the business that the record belongs to"}
}

// isNull reports whether a value is missing or null, or cannot be an ID because it is an object or an array.
func (k *checker) isNull(v span) bool {
	return v.absent() || v.result || typeOf(k.raw(v)[0])&(TypeNull|TypeObject|TypeArray) != 0
}

// sameBusiness returns the fault of a value that is not the authenticated business's ID.
func (k *checker) sameBusiness(s *Schema, v span, name string) fault {
	text := k.text(v)
	if text == nil {
		if k.isNull(v) || !isInteger(k.raw(v)) {
			return fault{schema: s, path: name, kind: ErrContractViolation, why: "the business ID as a string or an integer"}
		}
		text = k.raw(v)
	}
	if string(text) == k.business {
		return fault{}
	}
	k.report.CrossTenant++
	return fault{schema: s, path: name, kind: ErrCrossTenantRecord, why: "the authenticated business"}
}

// mustGo reports whether an object with a visibility must be removed: it may not be seen, or it or an object in it is another business's. It notes
// all other faults of tenant and visibility. foreign is k.foreign from before the object.
func (k *checker) mustGo(s *Schema, spans []span, foreign fault) bool {
	var owner fault
	if s.tenant >= 0 {
		if tenant := k.text(spans[s.tenant]); s.also >= 0 || string(tenant) != k.business { // otherwise, it is the authenticated business's
			owner = k.owner(s, spans)
		}
	}
	switch {
	case owner.kind == ErrCrossTenantRecord && s.visible < 0: //nolint:errorlint // it is not wrapped
		if k.judging {
			k.violate(s, owner.path, OtherBusiness)
		}
		if k.foreign.schema == nil {
			k.foreign = owner
		}
	case owner.kind == ErrCrossTenantRecord, s.visible >= 0 && k.foreign.schema != foreign.schema: //nolint:errorlint // as above
		return true
	case owner.schema != nil:
		k.invalid = owner                                // wins over other faults, even if the object may not be seen
		if k.judging && owner.kind == ErrMissingTenant { //nolint:errorlint // it is not wrapped
			k.violate(s, owner.path, NoBusiness)
		} else if k.judging {
			k.violate(s, owner.path, owner.why)
		}
	case s.visible >= 0:
		value := k.text(spans[s.visible])
		if value == nil {
			if k.invalid = (fault{schema: s, path: s.Visible, why: "a string"}); k.judging {
				k.violate(s, s.Visible, "a string")
			}
		} else if !slices.Contains(s.Shown, string(value)) {
			k.report.Unpublished++
			return true
		}
	}
	return false
}

// ownBusiness notes members that name another business than the authenticated one.
func (k *checker) ownBusiness(s *Schema, spans []span) {
	for _, i := range [...]int{s.tenant, s.also} {
		if i < 0 || spans[i].absent() {
			continue
		}
		if p := &s.Properties[i]; p.Schema.Refused == "" && k.sameBusiness(s, spans[i], p.Name).schema != nil {
			k.note(holds, p.Schema, p.Name, "is not your own business")
		}
	}
}
