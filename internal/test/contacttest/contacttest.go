// Package contacttest has contacts as a data service sends them, of a usual size.
package contacttest

import "strings"

// Contact returns the contact 10403 of a business. The first name and the notes are contents of JSON strings.
func Contact(businessID, firstName, notes string) string {
	return `{"id":10403,"business_id":"` + businessID + `","first_name":"` + firstName + `","last_name":"Halvorsen",` +
		`"email":"ines@example.com","phone_number":"6085550123","country_code":"+1","contact_type":"customer",` +
		`"contact_status":"active","notes":"` + notes + `","date_created":"2026-03-05T14:30:00Z",` +
		`"date_modified":"2026-03-05T14:30:00Z","version":1}`
}

// Page returns a page with a contact n times.
func Page(contact string, n int) string {
	return `{"contacts":[` + strings.TrimSuffix(strings.Repeat(contact+",", n), ",") + `],"next_cursor":null}`
}
