package upstream

// Enforcement says which deviations of responses from the definition pass.
//
// Whatever it is, these hold: the checks of requests, tenant and visibility, the removal of internal and writeOnly members, sizes, JSON's
// syntax and depth, media types, status codes and headers, that the records are where they are said to be, and that what is mapped can be
// converted.
type Enforcement uint8

// The steps of enforcement.
const (
	EnforceAll     Enforcement = iota // none pass
	EnforceMembers                    // possible values, formats, patterns, lengths and bounds may deviate
	EnforceTenant                     // all deviations pass, undocumented members too
)

// Deviation is a way in which a response deviated from the definition and passed. It has no values in it.
type Deviation struct {
	Pointer string // JSON Pointer of the member; * stands for each item of an array, and for a name that is not an identifier
	Rule    string // such as "type", "format" or "undocumented"
	Count   int    // how often, in this response
}
