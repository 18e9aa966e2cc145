package upstream

import "slices"

// This file checks that an object belongs to the authenticated business and that it may be seen.

const notOwnBusiness = "is not your own business"

// checkTenant returns the fault of an object that does not name the authenticated business as its tenant. It updates the report.
func (k *checker) checkTenant(s *Schema, spans []span) fault {
	if tenant := spans[s.tenant]; !k.isNull(tenant) || s.TenantIsField {
		f := k.checkBusinessID(s, tenant, s.Tenant)
		if f.schema == nil && s.alsoTenant >= 0 && !k.isNull(spans[s.alsoTenant]) {
			f = k.checkBusinessID(s, spans[s.alsoTenant], s.AlsoTenant)
		}
		return f
	}
	k.report.MissingTenant++
	if k.contract.AllowMissingTenant {
		return fault{}
	}
	return fault{schema: s, path: s.Tenant, kind: ErrMissingTenant, why: "the ID of the business that the record belongs to"}
}

// mustProve reports whether nothing around a value says whose it is, and only what is in it can.
func (k *checker) mustProve(s *Schema) bool { return s.hasTenant && !k.proved }

// missingProof returns a property in which a tenant would have been checked, if none of an object was there.
func (k *checker) missingProof(s *Schema, spans []span) (missing *Property) {
	if s.Additional != nil && s.Additional.hasTenant {
		return nil
	}
	for i := range s.Properties {
		switch v := spans[i]; {
		case !s.Properties[i].Schema.hasTenant:
		case v.end < 0 || v.result || v.end > 0 && k.raw(v)[0] != 'n':
			return nil
		case missing == nil:
			missing = &s.Properties[i]
		}
	}
	return missing
}

// isNull reports whether a value is missing or null, or cannot be an ID because it is an object or an array.
func (k *checker) isNull(v span) bool {
	return v.isAbsent() || v.result || typeOf(k.raw(v)[0])&(TypeNull|TypeObject|TypeArray) != 0
}

// checkBusinessID returns the fault of a value that is not the authenticated business's ID.
func (k *checker) checkBusinessID(s *Schema, v span, name string) fault {
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

// mustRemove reports whether an object with a visibility must be removed: it may not be seen, or it or an object in it is another business's. It notes
// all other faults of tenant and visibility. crossTenant is k.crossTenant from before the object.
func (k *checker) mustRemove(s *Schema, spans []span, crossTenant fault) bool {
	var tenantFault fault
	if s.tenant >= 0 {
		if tenant := k.text(spans[s.tenant]); s.alsoTenant >= 0 || string(tenant) != k.business { // otherwise, it is the authenticated business's
			tenantFault = k.checkTenant(s, spans)
		}
	}
	switch {
	case tenantFault.kind == ErrCrossTenantRecord && s.visible < 0: //nolint:errorlint // it is not wrapped
		if k.allViolations {
			k.addViolation(s, tenantFault.path, OtherBusiness)
		}
		if k.crossTenant.schema == nil {
			k.crossTenant = tenantFault
		}
	case tenantFault.kind == ErrCrossTenantRecord, s.visible >= 0 && k.crossTenant.schema != crossTenant.schema: //nolint:errorlint // as above
		return true
	case tenantFault.schema != nil:
		k.invalid = tenantFault                                      // wins over other faults, even if the object may not be seen
		if k.allViolations && tenantFault.kind == ErrMissingTenant { //nolint:errorlint // it is not wrapped
			k.addViolation(s, tenantFault.path, NoBusiness)
		} else if k.allViolations {
			k.addViolation(s, tenantFault.path, tenantFault.why)
		}
	case s.visible >= 0:
		value := k.text(spans[s.visible])
		if value == nil {
			if k.invalid = (fault{schema: s, path: s.Visible, why: "a string"}); k.allViolations {
				k.addViolation(s, s.Visible, "a string")
			}
		} else if !slices.Contains(s.VisibleValues, string(value)) {
			k.report.Unpublished++
			return true
		}
	}
	return false
}

// noteOtherBusiness notes members that name another business than the authenticated one.
func (k *checker) noteOtherBusiness(s *Schema, spans []span) {
	for _, i := range [...]int{s.tenant, s.alsoTenant} {
		if i < 0 || spans[i].isAbsent() {
			continue
		}
		if p := &s.Properties[i]; p.Schema.Refused == "" && k.checkBusinessID(s, spans[i], p.Name).schema != nil {
			k.note(ruleAlways, p.Schema, p.Name, notOwnBusiness)
		}
	}
}
